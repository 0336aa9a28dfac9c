"""A run in a bucket: bit for bit the run on a disk; in trouble whole commits and a sentence; one history."""

import json
import pickle
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.config import Recipe
from lemur_ray.storage import append_file
from lemur_ray.train.checkpoint import Checkpoints, SaveFailed, SaveInterrupted
from lemur_ray.train.run.failures import FailureKind, classify
from lemur_ray.train.run.fence import Fence, Superseded
from lemur_ray.train.run.folder import RunFolderError
from lemur_ray.train.run.lease import lease
from lemur_ray.weights.checkpoints import commits, put_aside
from tests.storage.bucket_server import Service
from tests.storage.conftest import google  # noqa: F401  # a fixture

FOLDER = "gs://bucket/run/checkpoints"


def state(seed: int) -> dict[str, jax.Array]:
    return {"w": jax.random.normal(jax.random.key(seed), (64, 64)), "step": jnp.int32(seed)}


def restored(step: int) -> np.ndarray:
    like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), state(0))
    with Checkpoints(FOLDER, keep=3) as checkpoints:
        return np.asarray(checkpoints.restore(step, like)["w"])


def losses(lines: bytes) -> dict[int, float]:
    found = [json.loads(line) for line in lines.splitlines()]
    return {one["step"]: one["loss"] for one in found if "loss" in one}


@pytest.mark.parametrize(
    "trouble",
    [
        {"match": "(POST|PUT) ", "status": 503, "times": 2},
        {"match": "(POST|PUT) ", "lost": True, "skip": 2},
        {"match": "GET ", "drop": True, "skip": 3},
        {"match": "GET .*media", "truncate": 10},
    ],
    ids=["503", "lost", "drop", "truncate"],
)
def test_passing_troubles_leave_whole_commits(google: Service, trouble: dict[str, Any]) -> None:  # noqa: F811
    with Checkpoints(FOLDER, keep=3, fence=Fence("gs://bucket/run")) as checkpoints:
        google.trouble(**trouble)
        checkpoints.save(3, state(3), {"rows": 6})
    found, ignored = commits(FOLDER)
    assert [(one.step, one.plan) for one in found] == [(3, {"rows": 6, "attempt": 1})]
    assert not ignored
    np.testing.assert_array_equal(restored(3), state(3)["w"])


@pytest.mark.parametrize(
    ("trouble", "ends", "said"),
    [
        ({"status": 503}, SaveInterrupted, "did not answer within"),
        ({"stop": True}, SaveInterrupted, "did not answer within"),
        ({"status": 401}, SaveFailed, "answered 401 .*log in again.* what was committed before is intact"),
    ],
    ids=["503", "silence", "401"],
)
def test_a_bucket_that_is_gone_ends_a_save_with_a_sentence_and_once_it_is_back_the_next_start_saves(
    google: Service,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    trouble: dict[str, int],
    ends: type[Exception],
    said: str,
) -> None:
    """A bucket that is away is no reason to end the run, one that refuses is (``run.failures``)."""
    with Checkpoints(FOLDER, keep=3) as checkpoints:
        checkpoints.save(3, state(3), {"rows": 6})
        checkpoints.wait()
    checkpoints = Checkpoints(FOLDER, keep=3)
    monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "1")
    google.trouble(**trouble, times=10**6)
    began = time.monotonic()

    def save() -> None:
        checkpoints.save(6, state(6), {"rows": 12})
        checkpoints.wait()

    with pytest.raises(ends, match=f"gs://bucket {said}") as ended:
        save()
    as_it_arrives = pickle.loads(pickle.dumps(ended.value))
    transient = classify(as_it_arrives) is FailureKind.TRANSIENT
    assert transient == (ends is SaveInterrupted)
    assert time.monotonic() - began < 90
    google.troubles.clear()
    monkeypatch.delenv("LEMUR_BUCKET_PATIENCE_S")
    assert [commit.step for commit in commits(FOLDER)[0]] == [3]
    with Checkpoints(FOLDER, keep=3) as checkpoints:
        checkpoints.save(6, state(6), {"rows": 12})
    assert [commit.step for commit in commits(FOLDER)[0]] == [6, 3]
    np.testing.assert_array_equal(restored(6), state(6)["w"])


def test_a_torn_checkpoint_is_put_aside_by_requests_that_every_service_knows_and_never_looks_whole_halfway(
    google: Service,  # noqa: F811
) -> None:
    names = ("commit_success.txt", "plan/metadata", "state/d/0a", "state/manifest.ocdbt")
    for name in names:
        google.objects.put("bucket", f"run/checkpoints/6/{name}", name.encode(), {})
    google.trouble(match="POST .*state.*(copyTo|rewriteTo)", status=403, times=10)
    with pytest.raises(OSError, match="answered 403"):
        put_aside(f"{FOLDER}/6")
    assert not commits(FOLDER)[0]
    google.troubles.clear()
    assert put_aside(f"{FOLDER}/6") == f"{FOLDER}/6.torn1"
    left = google.objects.names("bucket")
    assert {name.rpartition("torn")[2].partition("/")[2] for name in left if "/6.torn" in name} == set(names)
    assert not [name for name in left if "checkpoints/6/" in name]


def test_a_group_that_was_cut_off_commits_nothing_after_the_next_one_began(google: Service) -> None:  # noqa: F811
    with Checkpoints(FOLDER, keep=3, fence=Fence("gs://bucket/run")) as cut_off:
        cut_off.save(3, state(3), {"rows": 6})
        cut_off.wait()
        with Checkpoints(FOLDER, keep=3, fence=Fence("gs://bucket/run")) as newer:
            with pytest.raises(Superseded, match="overtaken by attempt 2"):
                cut_off.save(6, state(66), {"rows": 12})
            newer.save(6, state(6), {"rows": 12})
    assert [commit.plan["attempt"] for commit in commits(FOLDER)[0]] == [2, 1]
    np.testing.assert_array_equal(restored(6), state(6)["w"])


def test_metrics_are_sent_in_pieces_once_each_and_at_the_latest_before_a_commit(
    run_here: Callable,
    small_recipe: Callable[..., Recipe],
    google: Service,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append_file, "UPLOAD_EVERY_S", 3600.0)  # a slow machine would upload more often
    at_commit: list[int] = []
    put = google.objects.put

    def recorded(bucket: str, name: str, *arguments: Any, **more: Any) -> Any:
        if name.endswith("/commit_success.txt") and name.count("/") == 4:
            lines = google.objects.get("bucket", "runs/one/metrics.jsonl", {}).data
            at_commit.append(max(losses(lines)))
        return put(bucket, name, *arguments, **more)

    google.objects.put = recorded  # type: ignore[method-assign]
    recipe = small_recipe(steps=40, checkpoint_every_steps=20, checkpoint_every_s=1e9)
    run_here(recipe, "gs://bucket/runs/one")
    assert [step >= saved for step, saved in zip(at_commit, (20, 40), strict=True)] == [True, True]
    name = "bucket/runs/one/metrics.jsonl"
    writes = [write for write in google.history.writes if write.name == name and write.accepted]
    assert len(writes) <= 3, "one for each commit and one at the end, whatever the number of lines"
    assert sorted(losses(google.objects.get("bucket", "runs/one/metrics.jsonl", {}).data)) == list(range(1, 41))


@pytest.mark.slow
def test_of_two_jobs_with_one_out_exactly_one_trains_twenty_times(
    corpus: Path,
    small_recipe: Callable[..., Recipe],
    google: Service,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both come at once, each as far as its workers; that they are processes of one number is as in two pods."""
    from lemur_ray.train.on_ray import trainer

    training: list[str] = []
    other_left = threading.Event()

    def fit(run: Any, *_: Any) -> dict[str, Any]:
        training.append(run.out)
        assert other_left.wait(60)
        return {"steps": 12}

    def come(out: str) -> str:
        both.wait()
        try:
            return f"trained {trainer.train(small_recipe(), corpus=str(corpus), out=out)['steps']} steps"
        except RunFolderError as error:
            other_left.set()
            return str(error)

    monkeypatch.setattr(trainer, "_fit", fit)
    monkeypatch.setattr(trainer, "lease", partial(lease, beat_s=0.5))
    monkeypatch.setattr(trainer, "hosts_without_storage", lambda run: [])
    for number in range(20):
        out, both = f"gs://bucket/runs/{number}", threading.Barrier(2)
        other_left.clear()
        with ThreadPoolExecutor(2) as pool:
            said = sorted(pool.map(come, [out, out]))
        assert training == [out]
        assert said[1] == "trained 12 steps"
        assert said[0].startswith(f"{out} is being written by another run (process ")
        training.clear()


@pytest.mark.slow
def test_a_run_in_a_bucket_is_that_on_a_disk_and_resumes(
    ray_local: str,
    tmp_path: Path,
    corpus: Path,
    run_here: Callable,
    small_recipe: Callable[..., Recipe],
    google: Service,  # noqa: F811
) -> None:
    from lemur_ray.train.on_ray.trainer import train

    recipe = small_recipe(steps=12, checkpoint_every_steps=4, checkpoint_every_s=1e9)
    run_here(recipe, tmp_path / "whole")
    result = train(recipe, corpus=str(corpus), out="gs://bucket/runs/one")
    assert train(recipe, corpus=str(corpus), out="gs://bucket/runs/one") == {**result, "already_finished": True}
    assert commits("gs://bucket/runs/one/checkpoints")[0][0].step == 12
    there = google.objects.get("bucket", "runs/one/metrics.jsonl", {}).data
    assert losses(there) == losses((tmp_path / "whole" / "metrics.jsonl").read_bytes())
    assert not Path("gs:").exists()


@pytest.mark.slow
@pytest.mark.sweep  # some starts of workers; what ends a save, and what a run, have tests of their own
def test_a_run_whose_bucket_stands_still_for_longer_than_patience_goes_on_afterwards(
    ray_local: str,
    tmp_path: Path,
    corpus: Path,
    run_here: Callable,
    small_recipe: Callable[..., Recipe],
    google: Service,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from lemur_ray.train.on_ray.trainer import train

    monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "8")
    recipe = small_recipe(steps=400, checkpoint_every_steps=50, checkpoint_every_s=1e9)
    run_here(recipe, tmp_path / "whole")
    stopped: list[int] = []

    def stand_still() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not stopped:
            if any(re.search(r"checkpoints/\d+/commit_success", name) for name in google.objects.names("bucket")):
                google.trouble(stop=True, times=10**6)
                stopped.append(1)
                time.sleep(20)
                google.troubles.clear()
            time.sleep(0.005)

    watching = threading.Thread(target=stand_still)
    watching.start()
    result = train(recipe, corpus=str(corpus), out="gs://bucket/runs/stands")
    watching.join()
    assert stopped
    assert result["first_step"] > 0, "it went on from a commit"
    assert result["goodput"]["attempts"] > 1
    there = google.objects.get("bucket", "runs/stands/metrics.jsonl", {}).data
    assert losses(there) == losses((tmp_path / "whole" / "metrics.jsonl").read_bytes())
