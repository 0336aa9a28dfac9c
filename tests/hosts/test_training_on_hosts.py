"""Corpus and pretraining on hosts that share nothing but a bucket, which lose a host and get a cut-off one back.

A sweep: minutes. The bucket is a service outside of the cluster's network, as a real one is.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lemur_ray.corpus.build import build
from lemur_ray.storage.file_system import file_system
from lemur_ray.weights.checkpoints import commits
from tests.hosts.host import Host
from tests.hosts.ray_hosts import RayHosts
from tests.hosts.training_jobs import CORPUS, CORPUS_CONFIG, RECIPE, job, lines_of, losses, newest, train
from tests.storage.bucket_server import Service

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]


def test_hosts_make_a_corpus_together_without_a_mount(cluster: RayHosts, bucket: Service, tmp_path: Path) -> None:
    made = job(
        cluster, bucket, "jobs/build_corpus.py", "--source", "notes:text:gs://bucket/texts", *CORPUS, "--out",
        "gs://bucket/corpus",
    ).end(600)  # fmt: skip
    assert made["corpus"] == "gs://bucket/corpus"
    here = build(CORPUS_CONFIG, tmp_path / "here", workers=0, say=lambda line: None)
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
