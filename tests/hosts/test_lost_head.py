"""The host of the head is lost, or the head alone: drivers elsewhere say so, and the same command goes on afterwards.

A sweep: minutes. What lasts is in a bucket outside of the cluster; the driver of a submitted job goes with the head.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from lemur_ray.corpus.build import build
from lemur_ray.rollout.evaluation_folder import LEDGER, EvaluationError, evaluation_folders
from lemur_ray.rollout.ledger import read_episodes
from tests.agents.misbehaving import serving
from tests.hosts.host import Host
from tests.hosts.ray_hosts import RayHosts, Submitted
from tests.hosts.slow_model import SlowModel
from tests.hosts.training_jobs import CORPUS_CONFIG, job, lines_of, losses, newest, train
from tests.storage.bucket_server import Service

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]

WAITS = """
import _path
from lemur_ray.cluster.connection import connect
connect(require_same_code=False)
import ray, time

@ray.remote(num_cpus=0)
def wait():
    time.sleep(3600)

there = wait.options(resources={"b": 0.1}).remote()
print("joined", flush=True)
ray.get(there)
"""


@pytest.fixture(scope="module")
def corpus(bucket: Service) -> None:
    """In the bucket."""
    build(CORPUS_CONFIG, "gs://bucket/corpus", workers=0, say=lambda line: None)


def last_line(ended: Submitted) -> str:
    return ended.printed().strip().splitlines()[-1]


def all_back(cluster: RayHosts) -> float:
    return cluster.wait(240, head="ALIVE", a="ALIVE", b="ALIVE")


def test_a_driver_whose_head_is_lost_says_so_and_the_same_command_goes_on_bit_for_bit(
    cluster: RayHosts, bucket: Service, corpus: None, undisturbed: dict[int, float]
) -> None:
    out = "gs://bucket/runs/headless"
    beside = cluster.drive(cluster.hosts["b"], "-c", WAITS, env={"PYTHONPATH": "jobs"})
    running = train(cluster, bucket, out)
    running.wait_for(lambda: newest(out) >= 20, 300)
    assert "joined" in beside.printed()
    cluster.lose(cluster.head)
    lost_at = time.monotonic()
    try:
        assert beside.process.wait(120) == 1, beside.printed()[-4000:]
        said_s = time.monotonic() - lost_at
        assert "has not answered for" in last_line(beside), beside.printed()[-4000:]
        assert "run the same command again" in last_line(beside)
        at = newest(out)
        cluster.replace(cluster.head)
        began = time.monotonic()
        back_s = all_back(cluster)
        again = train(cluster, bucket, out)
        again.wait_for(lambda: newest(out) > at + 10, 300)
        resumed_s = time.monotonic() - began
        again.end(900)
        print(
            f"a sentence after {said_s:.1f} s; from a new head on: all hosts {back_s:.1f} s, a commit {resumed_s:.1f} s"
        )
        print(f"who submitted: {running.process.poll()}: {running.printed()[-300:]}")
    finally:
        running.process.kill()  # Ray's own program hears nothing of a host that went without a word
        running.process.wait()
    assert "has not given it back" in again.printed()
    assert losses(lines_of(f"{out}/metrics.jsonl")) == undisturbed


def end_gcs(head: Host) -> None:
    """The head's program alone; its host, its network and its supervisor live."""
    for pid in head.processes():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"gcs_server"):
                os.kill(pid, signal.SIGKILL)


def test_an_evaluation_whose_head_is_started_anew_counts_every_episode_once(
    cluster: RayHosts, bucket: Service, lemur_home: Path
) -> None:
    model, out, a = SlowModel(), "gs://bucket/episodes/headless", cluster.hosts["a"]
    with serving(model, host=cluster.net.outside) as server:
        what = ("--benchmark", "intercode/sql", "--policy", f"openai:{server.url}", "--policy-model", "toy")
        what += ("--data", "", "--prompt", "full", "--actors", "3", "--in-flight", "9", "--out", out)
        model.think_s = 4.0
        running = cluster.drive(a, "jobs/agent_eval.py", *what, env=bucket.environment)

        def stored() -> dict[str, str]:
            """Of the episodes that the bucket has, when they began."""
            with contextlib.suppress(EvaluationError):
                (folder,) = evaluation_folders([out])
                return {str(episode.key): episode.started for episode in read_episodes(folder / LEDGER)}
            return {}

        running.wait_for(lambda: len(stored()) >= 8, 240)
        end_gcs(cluster.head)
        lost_at = time.monotonic()
        assert running.process.wait(120) == 1, running.printed()[-4000:]
        said_s = time.monotonic() - lost_at
        assert "does not know this host any more" in last_line(running), running.printed()[-4000:]
        before = stored()
        back_s = all_back(cluster)
        model.well.set()
        ended = job(cluster, bucket, "jobs/agent_eval.py", *what).end(400)
        print(f"a sentence after {said_s:.1f} s, all hosts back {back_s:.1f} s later")
    assert (ended["n"], ended["scored"], ended["missing"]) == (64, 64, 0)
    assert len(lines_of(f"{out}/{LEDGER}")) == 64
    assert before.items() <= stored().items(), "what had ended was played again"
