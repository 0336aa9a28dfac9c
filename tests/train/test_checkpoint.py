"""Checkpoints: what counts as committed, torn ones, another run's, no space, two writers."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from lemur_ray.config import Recipe
from lemur_ray.storage.retry_policy import refusal_error
from lemur_ray.train.checkpoint import Checkpoints, SaveFailed, SaveInterrupted, UnreadableCheckpoint
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped, lock
from lemur_ray.weights.checkpoints import commits, newest_commit, put_aside

Losses = Callable[[Path], dict[int, float]]


def state(seed: int, size: int = 64) -> dict[str, jax.Array]:
    return {"w": jax.random.normal(jax.random.key(seed), (size, size)), "step": jnp.int32(seed)}


def abstract(like: dict[str, jax.Array]) -> Any:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), like)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A folder with checkpoints 3, 6 and 9 of three states."""
    folder = tmp_path / "checkpoints"
    with Checkpoints(str(folder), keep=3) as checkpoints:
        for step in (3, 6, 9):
            checkpoints.save(step, state(step), {"rows": step * 2})
    return folder


def test_a_checkpoint_comes_back_bit_for_bit_with_its_place_in_the_plan(three: Path) -> None:
    with Checkpoints(str(three), keep=3) as checkpoints:
        newest = checkpoints.newest()
        assert newest is not None
        assert (newest.step, newest.plan) == (9, {"rows": 18})
        restored = checkpoints.restore(9, abstract(state(0)))
    np.testing.assert_array_equal(restored["w"], state(9)["w"])


def test_the_newest_are_kept(tmp_path: Path) -> None:
    with Checkpoints(str(tmp_path / "c"), keep=2) as checkpoints:
        for step in (1, 2, 3, 4):
            checkpoints.save(step, state(step), {"rows": step})
    assert [commit.step for commit in commits(str(tmp_path / "c"))[0]] == [4, 3]


def test_saving_copies_the_state_before_the_next_step_takes_its_memory(tmp_path: Path) -> None:
    step = jax.jit(lambda s: jax.tree.map(lambda a: a * 0 - 1, s), donate_argnums=0)
    live = state(5, 1500)
    expected = np.array(live["w"])
    with Checkpoints(str(tmp_path / "c"), keep=2) as checkpoints:
        checkpoints.save(1, live, {"rows": 1})
        for _ in range(5):
            live = step(live)
    with Checkpoints(str(tmp_path / "c"), keep=2) as checkpoints:
        np.testing.assert_array_equal(checkpoints.restore(1, abstract(live))["w"], expected)


@pytest.mark.parametrize("piece", ["plan/metadata", "state/_METADATA", "state/manifest.ocdbt"])
def test_a_checkpoint_that_lacks_a_piece_is_left_out_and_reported(three: Path, piece: str) -> None:
    (three / "9" / piece).unlink()
    newest = newest_commit(str(three))
    assert newest is not None
    assert newest.step == 6
    with Checkpoints(str(three), keep=3) as checkpoints:
        assert len(checkpoints.ignored) == 1
        assert piece in str(checkpoints.ignored[0])
        checkpoints.save(9, state(90), {"rows": 18})
    assert [commit.step for commit in commits(str(three))[0]] == [9, 6, 3]


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[AbstractFileSystem]:
    """``gs://`` as files in memory."""
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "gs", MemoryFileSystem)
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/gs:", recursive=True)


def test_in_google_storage_a_checkpoint_counts_once_its_last_file_is_there_and_a_torn_one_is_put_aside(
    three: Path, google: AbstractFileSystem
) -> None:
    google.put(str(three), "gs://bucket/checkpoints", recursive=True)
    assert [commit.step for commit in commits("gs://bucket/checkpoints")[0]] == [9, 6, 3]
    google.rm("gs://bucket/checkpoints/9/commit_success.txt")
    found, ignored = commits("gs://bucket/checkpoints")
    assert [commit.step for commit in found] == [6, 3]
    assert [str(entry) for entry in ignored] == ["gs://bucket/checkpoints/9: torn, lacks commit_success.txt"]
    assert put_aside("gs://bucket/checkpoints/9") == "gs://bucket/checkpoints/9.torn"
    assert google.exists("gs://bucket/checkpoints/9.torn/state/manifest.ocdbt")
    assert not google.exists("gs://bucket/checkpoints/9")
    assert put_aside("gs://bucket/checkpoints/6") == "gs://bucket/checkpoints/6.torn"
    assert [commit.step for commit in commits("gs://bucket/checkpoints")[0]] == [3]


class Remembering(MemoryFileSystem):
    """Files in memory that, like those of a bucket, know a folder from the last listing until told to forget."""

    protocol = "remembering"
    listed: ClassVar[dict[str, bool]] = {}

    def isdir(self, path: str) -> bool:
        return self.listed.setdefault(path, super().isdir(path))

    def invalidate_cache(self, path: str | None = None) -> None:
        self.listed.clear()


def test_the_first_checkpoint_is_found_where_its_folder_was_looked_for_before(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "remembering", Remembering)
    folder = "remembering://run/checkpoints"
    assert newest_commit(folder) is None
    fs = fsspec.filesystem("remembering")
    fs.put(str(three), folder, recursive=True)
    assert [commit.step for commit in commits(folder)[0]] == [9, 6, 3]
    fs.rm(folder, recursive=True)


def test_a_save_that_was_cut_off_is_not_a_checkpoint(three: Path) -> None:
    shutil.copytree(three / "9", three / "12.orbax-checkpoint-tmp")
    found, ignored = commits(str(three))
    assert [commit.step for commit in found] == [9, 6, 3]
    assert [str(entry) for entry in ignored] == [f"{three}/12.orbax-checkpoint-tmp: not committed"]
    with Checkpoints(str(three), keep=3):
        assert not (three / "12.orbax-checkpoint-tmp").exists()


# Reads of the other arrays fail after the first failure has ended orbax's event loop.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_whose_newest_checkpoint_has_damaged_arrays_goes_on_from_the_one_before(
    tmp_path: Path, run_here: Callable, small_recipe: Callable[..., Recipe], read_losses: Losses
) -> None:
    run_here(small_recipe(), tmp_path / "run")
    losses = read_losses(tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    for data in (tmp_path / "run" / "checkpoints" / "12" / "state").rglob("d/*"):
        data.write_bytes(b"")
    lines: list[str] = []
    result = run_here(small_recipe(), tmp_path / "run", lines=lines)
    assert result["first_step"] == 8
    assert result["replays_that_differ"] == []
    assert read_losses(tmp_path / "run") == losses
    assert any("12 cannot be read" in line and "12.torn" in line for line in lines)


def test_a_checkpoint_of_another_recipe_is_refused_with_the_fields(
    tmp_path: Path, run_here: Callable, small_recipe: Callable[..., Recipe]
) -> None:
    run_here(small_recipe(), tmp_path / "a")
    shutil.copytree(tmp_path / "a" / "checkpoints", tmp_path / "b" / "checkpoints")
    with pytest.raises(RunFolderError, match=r"checkpoints/12 belongs to another run.*\n.*steps: 12 != 16"):
        run_here(small_recipe(steps=16), tmp_path / "b")


def test_a_checkpoint_made_from_another_corpus_is_refused(
    tmp_path: Path, corpus: Path, run_here: Callable, small_recipe: Callable[..., Recipe]
) -> None:
    run_here(small_recipe(), tmp_path / "run")
    other = tmp_path / "other"
    shutil.copytree(corpus, other)
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps({**manifest, "built_again": True}))
    with pytest.raises(RunFolderError, match="corpus: '"):
        run_here(small_recipe(), tmp_path / "run", source=other)


def test_a_second_writer_is_refused_and_a_dead_one_does_not_block(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from lemur_ray.train.run.folder import lock\n"
        f"with lock({str(tmp_path)!r}, 'run'):\n    print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(RunFolderError, match=f"being written by another run \\(process {other.pid}\\)"),
            lock(str(tmp_path), "run"),
        ):
            pass
    finally:
        other.kill()
        other.communicate()
    with lock(str(tmp_path), "run", wait_s=10):
        assert (tmp_path / ".run.lock").read_text().strip() == str(os.getpid())


FILL_THE_DISK = """
import resource, sys
from pathlib import Path
import jax, jax.numpy as jnp
from lemur_ray.train.checkpoint import Checkpoints, SaveFailed, SaveInterrupted
from lemur_ray.weights.checkpoints import newest_commit

def state(seed):
    return {"w": jax.random.normal(jax.random.key(seed), (600, 600))}

folder = sys.argv[1]
with Checkpoints(folder, keep=3) as checkpoints:
    checkpoints.save(1, state(1), {"rows": 1})
    checkpoints.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    try:
        checkpoints.save(2, state(2), {"rows": 2})
        checkpoints.wait()
    except SaveFailed as error:
        print("ERROR", error)
    print("NEWEST", newest_commit(folder).step)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
with Checkpoints(folder, keep=3) as checkpoints:
    checkpoints.save(2, state(2), {"rows": 2})
print("AFTER", newest_commit(folder).step)
"""


def test_no_room_for_a_checkpoint_is_a_clear_error_and_the_old_one_stays(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(folder)], capture_output=True, text=True, timeout=120, check=True
    )
    out = done.stdout
    assert f"could not save checkpoint 2 to {folder}" in out
    assert "MiB free" in out
    assert "checkpoint 1 is intact" in out
    assert "run the same command again" in out
    assert "NEWEST 1" in out
    assert "AFTER 2" in out


def test_a_run_that_found_no_room_resumes_exactly_once_there_is_some(
    tmp_path: Path,
    run_here: Callable,
    small_recipe: Callable[..., Recipe],
    read_losses: Losses,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_here(small_recipe(), tmp_path / "whole")
    real = ocp.CheckpointManager.save

    def full(self: ocp.CheckpointManager, step: int, *arguments: Any, **options: Any) -> Any:
        if step == 8:
            raise OSError(28, "No space left on device")
        return real(self, step, *arguments, **options)

    monkeypatch.setattr(ocp.CheckpointManager, "save", full)
    with pytest.raises(SaveFailed, match=r"checkpoint 8 .*No space left on device.*checkpoint 4 is intact"):
        run_here(small_recipe(), tmp_path / "run")
    monkeypatch.setattr(ocp.CheckpointManager, "save", real)
    assert run_here(small_recipe(), tmp_path / "run")["first_step"] == 4
    assert read_losses(tmp_path / "run") == read_losses(tmp_path / "whole")


def wrapped(why: str) -> Exception:
    """As orbax raises it: its own words, those of tensorstore as the cause."""
    error = Exception("Encountered error while reading array index: (slice(0, 8, 1),). See full details: ...")
    error.__cause__ = ValueError(why)
    return error


@pytest.mark.parametrize(
    ("error", "raised", "stays"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer"), ValueError, True),
        (jax.errors.JaxRuntimeError("INTERNAL: a core halted"), jax.errors.JaxRuntimeError, True),
        (wrapped('UNAVAILABLE: Error reading "w/0.0" in OCDBT database at gs://b: 503'), Exception, True),
        (wrapped('INTERNAL: Error reading "w/0.0" in OCDBT database: Stale file handle'), Exception, True),
        (ValueError("on-disk value metadata tree structures do not match:\nnew: MISSING"), TrainingStopped, True),
        (wrapped('OUT_OF_RANGE: Error reading "w/0.0": not valid for value of size 0'), UnreadableCheckpoint, False),
        (wrapped('DATA_LOSS: Error reading "w/0.0": CRC-32C checksum'), UnreadableCheckpoint, False),
    ],
    ids=["peer gone", "device", "bucket busy", "stale mount", "other arrays", "too short", "data loss"],
)
@pytest.mark.parametrize("primary", [True, False])
def test_only_damage_puts_a_checkpoint_aside_and_any_worker_that_sees_it_does(
    error: Exception, raised: type[Exception], stays: bool, primary: bool, three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def restore(self: ocp.CheckpointManager, *arguments: Any, **options: Any) -> None:
        raise error

    with Checkpoints(str(three), keep=3, primary=primary) as checkpoints:
        monkeypatch.setattr(ocp.CheckpointManager, "restore", restore)
        with pytest.raises(raised) as found:
            checkpoints.restore(9, abstract(state(0)))
        monkeypatch.undo()
        assert (three / "9").exists() == stays
        assert checkpoints.damaged() == ([] if stays else [f"{three}/9.torn"])
    if raised is UnreadableCheckpoint:
        assert str(error.__cause__) in str(found.value)


def test_a_checkpoint_that_was_never_finished_does_not_count_as_damaged(three: Path) -> None:
    (three / "9" / "plan" / "metadata").unlink()
    with Checkpoints(str(three), keep=3) as checkpoints:
        assert (three / "9.torn").exists()
        assert checkpoints.damaged() == []


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer"), SaveInterrupted),
        (jax.errors.JaxRuntimeError("UNAVAILABLE: failed to connect to all addresses"), SaveInterrupted),
        (ValueError("RESOURCE_EXHAUSTED: Error writing local file: No space left on device"), SaveFailed),
        (OSError(28, "No space left on device"), SaveFailed),
        (PermissionError(13, "Permission denied"), SaveFailed),
        (refusal_error("gs://bucket", 401, "Invalid Credentials"), SaveFailed),
        (refusal_error("gs://bucket", 503, "in trouble"), SaveInterrupted),
        (ValueError("PERMISSION_DENIED: Error writing gs://bucket/x: HTTP response code: 403"), SaveFailed),
    ],
)
def test_a_save_that_ends_because_another_worker_or_the_coordinator_is_gone_is_no_reason_to_end_the_run(
    error: Exception, raised: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(self: ocp.CheckpointManager, *arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    with Checkpoints(str(tmp_path / "c"), keep=2) as checkpoints:
        monkeypatch.setattr(ocp.CheckpointManager, "save", save)
        with pytest.raises(raised):
            checkpoints.save(1, state(1), {"rows": 1})
        monkeypatch.undo()
