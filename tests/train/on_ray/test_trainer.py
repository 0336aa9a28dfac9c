"""Training under Ray Train and Ray Data: equal to the run without Ray, and exact after a worker is killed."""

import dataclasses
import json
import os
import pickle
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.train.run.folder import RunFolderError, check_writable

Losses = Callable[[Path], dict[int, float]]


def kill_worker_at(out: Path, step: int, killed: list[int]) -> threading.Thread:
    """End the process of rank 0 by SIGKILL once its metrics have reached a step."""

    def watch() -> None:
        deadline = time.monotonic() + 240
        metrics = out / "metrics.jsonl"
        while time.monotonic() < deadline:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= step:
                pid = int((out / ".rank0.lock").read_text())
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.sweep  # the slow tier has the run that loses a host, compared with one device at every step
def test_a_killed_worker_is_replaced_and_every_later_loss_is_that_of_the_unbroken_run_without_ray(
    ray_local: str,
    tmp_path: Path,
    corpus: Path,
    run_here: Callable,
    small_recipe: Callable[..., Recipe],
    read_losses: Losses,
) -> None:
    from lemur_ray.train.on_ray.trainer import train

    recipe = small_recipe(steps=400, checkpoint_every_steps=50, checkpoint_every_s=1e9)
    run_here(recipe, tmp_path / "whole")
    killed: list[int] = []
    watcher = kill_worker_at(tmp_path / "run", 120, killed)
    result = train(recipe, corpus=str(corpus), out=str(tmp_path / "run"))
    watcher.join()
    assert killed, "the run ended before the worker could be killed"
    assert result["first_step"] in range(50, 400, 50), "the run did not resume from a checkpoint"
    assert result["replays_that_differ"] == []
    assert read_losses(tmp_path / "run") == read_losses(tmp_path / "whole")
    again = train(recipe, corpus=str(corpus), out=str(tmp_path / "run"))
    assert again.pop("already_finished")
    assert again == result


@pytest.mark.slow
def test_a_run_that_cannot_go_on_says_why_and_is_not_tried_again(
    ray_local: str, tmp_path: Path, corpus: Path, small_recipe: Callable[..., Recipe]
) -> None:
    from lemur_ray.train.on_ray.trainer import train
    from lemur_ray.train.run.folder import TrainingStopped

    recipe = small_recipe(max_skips_in_a_row=1)
    hot = dataclasses.replace(recipe, optimizer=dataclasses.replace(recipe.optimizer, peak_lr=1e30))
    with pytest.raises(TrainingStopped, match=r"1 updates in a row were skipped .* rows \[\d+, \d+\): lower"):
        train(hot, corpus=str(corpus), out=str(tmp_path / "run"))
    assert "skipped" in json.loads((tmp_path / "run" / "stopped.json").read_text())["error"]
    attempts = [json.loads(line) for line in (tmp_path / "run" / "goodput.jsonl").read_text().splitlines()]
    assert len({record["attempt"] for record in attempts if "attempt" in record}) == 1, "it was tried again"


def test_what_would_fail_again_is_raised_as_the_one_error_that_ray_train_does_not_try_again() -> None:
    from ray.train.v2._internal.execution.failure_handling.default import DefaultFailurePolicy
    from ray.train.v2._internal.execution.failure_handling.failure_policy import FailureDecision
    from ray.train.v2.api.config import FailureConfig
    from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

    from lemur_ray.train.on_ray.restarts import Restarts
    from lemur_ray.train.run.failures import Failures
    from lemur_ray.train.run.folder import TrainingStopped

    policy = DefaultFailurePolicy(FailureConfig(max_failures=192))
    restarts = pickle.loads(pickle.dumps(Restarts(int, Failures(alike=3))))
    error = KeyError("lr")
    for _ in range(2):
        restarts.after_exception(None, {5: error})
        assert policy.make_decision(WorkerGroupError("failed", {5: error})) is FailureDecision.RETRY
    with pytest.raises(ControllerError) as given_up:
        restarts.after_exception(None, {5: error})
    assert policy.make_decision(given_up.value) is FailureDecision.RAISE
    told = pickle.loads(pickle.dumps(given_up.value)).controller_failure
    assert isinstance(told, TrainingStopped)
    assert "failed 3 times in the same way since the beginning, the last time with: worker 5: 'lr'" in str(told)


def test_the_traceback_of_a_worker_is_indented_so_that_it_is_not_taken_for_a_message_of_ray() -> None:
    from lemur_ray.cluster.ray_output import OutputFilter
    from lemur_ray.train.on_ray.restarts import worker_traceback
    from lemur_ray.train.run.folder import TrainingStopped

    error = RuntimeError('Traceback (most recent call last):\n  File "x.py", line 1, in f\nKeyError: 1')
    text = worker_traceback({0: TrainingStopped("full"), 1: error, 2: error})
    expected = ["worker 1:", "Traceback (most recent call last):", '  File "x.py", line 1, in f', "KeyError: 1"]
    assert text.splitlines() == [f"  | {line}" for line in expected]
    output = OutputFilter()
    assert not any(output.is_library_line(line) for line in text.splitlines())
    assert not worker_traceback({0: TrainingStopped("full")})


@pytest.mark.slow
@pytest.mark.sweep  # minutes of starts; the test before has what Ray Train decides
def test_a_run_that_fails_in_the_same_way_every_time_is_given_up_long_before_its_restarts_are_used_up(
    ray_local: str, tmp_path: Path, corpus: Path, small_recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lemur_ray.train.on_ray import restarts, trainer
    from lemur_ray.train.run.failures import Failures
    from lemur_ray.train.run.folder import TrainingStopped

    shutil.copytree(corpus, tmp_path / "corpus")
    (tmp_path / "corpus" / "rows" / "python" / "00000.tokens").write_bytes(b"")
    monkeypatch.setattr(restarts, "Failures", lambda: Failures(alike=2))
    with pytest.raises(
        TrainingStopped, match=r"failed 2 times in the same way .* worker 0: .*00000\.tokens has 0 bytes"
    ):
        trainer.train(small_recipe(max_failures=50), corpus=str(tmp_path / "corpus"), out=str(tmp_path / "run"))


def test_what_is_wrong_is_said_before_any_worker_starts(
    tmp_path: Path, corpus: Path, small_recipe: Callable[..., Recipe]
) -> None:
    from lemur_ray.corpus.manifest import CorpusError
    from lemur_ray.train.on_ray.trainer import train

    with pytest.raises(CorpusError, match="nowhere"):
        train(small_recipe(), corpus=str(tmp_path / "nowhere"), out=str(tmp_path / "run"))
    with pytest.raises(ValueError, match="2 rows does not split over 4 microbatch"):
        train(small_recipe(microbatches=4), corpus=str(corpus), out=str(tmp_path / "run"))
    pod = {"use_tpu": True, "topology": "4x4", "accelerator_type": "TPU-V6E"}
    for mesh, said in (
        (
            MeshConfig(**pod, num_workers=3),
            r"num_workers 3 cannot hold topology 4x4 of TPU-V6E \(16 chips, 4 per host\): ",
        ),
        (
            MeshConfig(**{**pod, "topology": "8x8"}, num_workers=16),
            r"embed: axis 'dim' of size 32 does not divide over 64",
        ),
        (
            MeshConfig(num_workers=2, use_gpu=True, tp=2),
            r"mesh\.tp 2 does not divide model\.num_heads 2 and model\.num_kv_heads 1: choose one of 1",
        ),
        (MeshConfig(num_workers=2, min_workers=1, fsdp=2), "with min_workers 1 the run may have 1 workers: mesh dcn 1"),
    ):
        recipe = dataclasses.replace(small_recipe(rows_per_step=64), mesh=mesh)
        with pytest.raises(ValueError, match=said):
            train(recipe, corpus=str(corpus), out=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="not writable"):
        train(small_recipe(), corpus=str(corpus), out=str(tmp_path / "file" / "run"))


def test_the_mesh_of_a_recipe_is_what_ray_is_asked_for() -> None:
    from lemur_ray.recipes import get_recipe
    from lemur_ray.train.on_ray.trainer import _max_failures, jax_config, scaling_config
    from lemur_ray.train.on_ray.worker_environment import worker_env

    assert _max_failures(get_recipe("lemur-70b")) == 3 * 64, "12 days of 64 hosts lose some, not three in all"
    pod = get_recipe("lemur-70b").mesh
    scaling = scaling_config(pod)
    assert (scaling.use_tpu, scaling.topology, scaling.accelerator_type) == (True, "4x8x8", "TPU-V4")
    assert scaling.num_workers == 64
    assert jax_config(pod).use_tpu
    assert "JAX_PLATFORMS" not in worker_env(pod) or os.environ.get("JAX_PLATFORMS")

    alone = MeshConfig(cpus_per_worker=1.5)
    assert scaling_config(alone).resources_per_worker == {"CPU": 1.5}
    assert not jax_config(alone).use_tpu
    assert worker_env(alone)["JAX_PLATFORMS"] == "cpu"
    assert jax_config(MeshConfig(num_workers=2)).use_tpu, "two CPU workers need jax.distributed"
    assert jax_config(MeshConfig(num_workers=2, use_gpu=True)).use_gpu


def test_a_tokenizer_file_written_in_another_way_is_the_same_tokenizer(tmp_path: Path, corpus: Path) -> None:
    from lemur_ray.train.run.needs import check_tokenizer

    text = (corpus / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(json.dumps(json.loads(text), indent=2))
    check_tokenizer(str(corpus), str(tmp_path))
    Tokenizer.bytes_only().save(tmp_path / "tokenizer.json")
    with pytest.raises(RunFolderError, match=r"build_corpus\.py --tokenizer"):
        check_tokenizer(str(corpus), str(tmp_path))


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("s3://b/x", "choose a folder or gs://"),
        ("gs://b/x", r"lemur-ray\[gcs\]"),
        *((out, "or to gs://: choose") for out in ("nosuch://b", "gcs://b/x", "file:///tmp/x", "memory://b")),
    ],
)
def test_a_bucket_without_its_library_names_what_to_install_and_others_what_to_choose(
    out: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lemur_ray.storage.google_files", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "gs", raising=False)
    with pytest.raises(RunFolderError, match=said):
        check_writable(out)
