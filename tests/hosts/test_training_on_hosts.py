"""Corpus and pretraining on hosts that share nothing but a bucket, which lose a host and get a cut-off one back.

A sweep: minutes. The bucket is a service outside of the cluster's network, as a real one is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.checkpoints import commits
from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.storage.file_system import file_system
from tests.hosts.host import Host
from tests.hosts.ray_hosts import RayHosts, Submitted
from tests.storage.bucket_server import Service, google_service
from tests.train.test_resume import RECIPE as TWO_ROWS

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]

STEPS = 400
RECIPE = [*TWO_ROWS, "--train.rows-per-step", "8", "--train.eval-rows", "0", "--train.checkpoint-every-steps", "10"]
RECIPE += ["--train.checkpoint-every-s", "1000000", "--train.steps", str(STEPS), "--train.spike-sigmas", "0"]
CORPUS = ("--seq-len", "64", "--vocab-size", "320", "--heldout-rows", "4", "--part-mb", "0.02")


@pytest.fixture(scope="module")
def bucket(cluster: RayHosts) -> Iterator[Service]:
    """A service that every host reaches, with texts in it; this process is led there too."""
    pytest.importorskip("gcsfs", reason="make dev installs it")
    with google_service(host=cluster.net.outside) as service, pytest.MonkeyPatch.context() as patch:
        for name, value in service.environment.items():
            patch.setenv(name, value)
        fs, there = file_system("gs://bucket/texts")
        for number in range(60):
            text = f"Note {number}: " + " ".join(f"the word {number * 7 + i} and that of the day" for i in range(80))
            fs.pipe_file(f"{there}/{number:03d}.txt", text.encode())
        yield service


def job(cluster: RayHosts, bucket: Service, *entry: str) -> Submitted:
    told = [f"{name}={value}" for name, value in bucket.environment.items()]
    return cluster.submit("env", *told, "python", *entry)


def test_hosts_make_a_corpus_together_without_a_mount(cluster: RayHosts, bucket: Service, tmp_path: Path) -> None:
    made = job(
        cluster, bucket, "jobs/build_corpus.py", "--source", "notes:text:gs://bucket/texts", *CORPUS, "--out",
        "gs://bucket/corpus",
    ).end(600)  # fmt: skip
    assert made["corpus"] == "gs://bucket/corpus"
    config = CorpusConfig(
        source=("notes:text:gs://bucket/texts",), seq_len=64, vocab_size=320, heldout_rows=4, part_mb=0.02
    )
    here = build(config, tmp_path / "here", workers=0, say=lambda line: None)
    assert sum(source["tokens"] for source in here["sources"]) == sum(made["tokens"].values())
    there = file_system("gs://bucket/corpus")[0]
    for path in (tmp_path / "here").rglob("*"):
        name = path.relative_to(tmp_path / "here").as_posix()
        if path.is_file() and not name.startswith(".") and name != "manifest.json":
            assert there.cat_file(f"bucket/corpus/{name}") == path.read_bytes(), name


def test_what_only_one_host_sees_is_made_by_that_host(cluster: RayHosts) -> None:
    texts = Path(f"{cluster.head.root}/srv/texts")
    texts.mkdir()
    for number in range(40):
        (texts / f"{number}.txt").write_text(f"Note {number}: " + "the words and those of the day before " * 40)
    running = cluster.submit(
        "python", "jobs/build_corpus.py", "--source", "notes:text:/srv/texts", *CORPUS, "--out", "local"
    )
    made = running.end(300)
    assert "only this host works: a, b cannot see" in running.printed() or "b, a cannot see" in running.printed()
    assert made["counts"]["notes"]["read"] == 40
    assert "unreadable" not in made["counts"]["notes"]["dropped"]


def test_a_run_that_hosts_would_not_see_is_refused_in_a_sentence(cluster: RayHosts) -> None:
    """Of the corpus that the test before has made on the head."""
    running = cluster.submit("python", "jobs/pretrain.py", *RECIPE, "--corpus", "local", "--out", "runs/local")
    assert running.process.wait(180) != 0
    said = running.printed()
    assert "would train and cannot see" in said, said[-4000:]
    assert "into a bucket" in said


def lines_of(url: str) -> list[dict[str, Any]]:
    fs, path = file_system(url)
    try:
        return [json.loads(line) for line in fs.cat_file(path).splitlines()]
    except FileNotFoundError:
        return []


def newest(run: str) -> int:
    found = commits(f"{run}/checkpoints")[0]
    return found[0].step if found else 0


def losses(lines: list[dict[str, Any]]) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


@pytest.fixture(scope="module")
def undisturbed(cluster: RayHosts, bucket: Service) -> dict[int, float]:
    """Losses of the run that nothing happens to."""
    train(cluster, bucket, "gs://bucket/runs/calm").end(900)
    return losses(lines_of("gs://bucket/runs/calm/metrics.jsonl"))


def train(cluster: RayHosts, bucket: Service, out: str) -> Submitted:
    corpus = ("--corpus", "gs://bucket/corpus")
    return job(cluster, bucket, "jobs/pretrain.py", *RECIPE, "--mesh.num-workers", "2", *corpus, "--out", out)


def a_worker_s_host(cluster: RayHosts) -> Host:
    """One that trains, and is not the head: of three hosts with a core each two train."""
    return cluster.hosts[next(name for name in cluster.training() if name != "head")]


def test_a_run_whose_host_is_lost_between_commits_goes_on_and_is_bit_for_bit_the_other(
    cluster: RayHosts, bucket: Service, undisturbed: dict[int, float]
) -> None:
    out = "gs://bucket/runs/lost"
    running = train(cluster, bucket, out)
    running.wait_for(lambda: newest(out) >= 20, 300)
    host = a_worker_s_host(cluster)
    at = newest(out)
    cluster.lose(host)
    lost_at = time.monotonic()
    noticed_s = cluster.wait(60, **{host.name: "DEAD"})
    cluster.replace(host)
    running.wait_for(lambda: newest(out) > at + 10, 300)
    print(f"noticed after {noticed_s:.1f} s, a new commit after {time.monotonic() - lost_at:.1f} s")
    running.end(900)
    assert noticed_s < 20
    assert losses(lines_of(f"{out}/metrics.jsonl")) == undisturbed
    assert commits(f"{out}/checkpoints")[0][0].plan["attempt"] > 1, "it trained on that host"


def test_a_host_that_is_cut_off_and_comes_back_commits_nothing_beside_the_next_group(
    cluster: RayHosts, bucket: Service, undisturbed: dict[int, float]
) -> None:
    out = "gs://bucket/runs/cut"
    running = train(cluster, bucket, out)
    running.wait_for(lambda: newest(out) >= 20, 300)
    host = a_worker_s_host(cluster)
    cluster.net.cut(host)
    cut_at = time.monotonic()
    cluster.wait(60, **{host.name: "DEAD"})
    time.sleep(max(0.0, 60.0 - (time.monotonic() - cut_at)))
    cluster.net.mend(host)
    running.end(900)
    assert losses(lines_of(f"{out}/metrics.jsonl")) == undisturbed
    attempts = [commit.plan["attempt"] for commit in commits(f"{out}/checkpoints")[0]]
    assert attempts == sorted(attempts, reverse=True), "one history"
    assert attempts[0] > 1, "it trained on that host"
    cluster.wait(a="ALIVE", b="ALIVE")
