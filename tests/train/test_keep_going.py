"""What may go wrong in a long run and does not end it: rows left out later, a full disk, odd clocks."""

import dataclasses
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import orbax.checkpoint as ocp
import pytest

from lemur_ray.config import Recipe, TrainConfig
from lemur_ray.plan.plan import first_row_moved
from lemur_ray.train.checkpoint import Checkpoints, SaveFailed
from lemur_ray.train.metrics import MetricsLog
from lemur_ray.train.run.folder import Run, RunFolderError, TrainingStopped, prepare, tokenizer_of
from lemur_ray.weights.checkpoints import commits, newest_commit
from tests.train.test_checkpoint import state
from tests.train.test_loop import Killed, killed_after, poisoned

ORBAX_COMPLAINS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Work on the other arrays fails after the first failure has ended orbax's event loop."""
RunHere = Callable[..., dict]
Losses = Callable[[Path], dict[int, float]]
Recipes = Callable[..., Recipe]


def seen_rows(rows: list[int]) -> Callable:
    def feed(batches: Iterator[dict]) -> Iterator[dict]:
        for batch in batches:
            rows.extend(batch["tokens"].sum(axis=1).tolist())
            yield batch

    return feed


@pytest.mark.slow
def test_rows_ahead_may_be_left_out_of_a_run_that_has_begun_and_every_other_row_is_trained_on_once(
    tmp_path: Path, run_here: RunHere, small_recipe: Recipes, read_losses: Losses
) -> None:
    whole: list[int] = []
    run_here(small_recipe(), tmp_path / "whole", feed=seen_rows(whole))
    with pytest.raises(Killed):
        run_here(small_recipe(), tmp_path / "run", feed=killed_after(6))
    first = newest_commit(str(tmp_path / "run" / "checkpoints"))
    assert first is not None
    assert first.plan["rows"] == 8
    skipping = small_recipe(skip_rows=((10, 13),))
    with pytest.raises(Killed):
        run_here(skipping, tmp_path / "run", feed=lambda batches: killed_after(5)(batches))
    rest: list[int] = []
    run_here(skipping, tmp_path / "run", feed=seen_rows(rest))
    again = newest_commit(str(tmp_path / "run" / "checkpoints"))
    assert again is not None
    assert again.plan["recipe"]["train"]["skip_rows"] == [[10, 13]]
    # The second attempt stood at row 16 of the new order: row 19 of the order without skips.
    assert rest[: 24 - 19] == whole[19:24]
    losses, before = read_losses(tmp_path / "run"), read_losses(tmp_path / "whole")
    assert [step for step in range(1, 6) if losses[step] != before[step]] == []
    assert losses[6] != before[6] or losses[7] != before[7]


def test_rows_that_a_checkpoint_has_consumed_cannot_be_left_out_afterwards(
    tmp_path: Path, run_here: RunHere, small_recipe: Recipes
) -> None:
    with pytest.raises(Killed):
        run_here(small_recipe(), tmp_path / "run", feed=killed_after(6))
    with pytest.raises(RunFolderError, match=r"skip_rows moves row 7, but rows up to 8 are consumed"):
        run_here(small_recipe(skip_rows=((7, 9),)), tmp_path / "run")


@pytest.mark.parametrize(
    ("old", "new", "row"),
    [
        ([], [], None),
        ([[3, 5]], [[3, 4], [4, 5]], None),
        ([], [[10, 13]], 10),
        ([[2, 4]], [[2, 4], [10, 13]], 8),
        ([[2, 4]], [], 2),
        ([[0, 2]], [[0, 3]], 0),
    ],
)
def test_the_first_row_that_moves_is_found(old: list, new: list, row: int | None) -> None:
    assert first_row_moved(old, new) == row


def test_skipped_steps_are_logged_in_the_numbers_that_skip_rows_takes(
    tmp_path: Path, run_here: RunHere, small_recipe: Recipes
) -> None:
    lines: list[str] = []
    run_here(small_recipe(skip_rows=((4, 6), (13, 14))), tmp_path / "run", feed=poisoned({5}), lines=lines)
    records = {r["step"]: r for r in map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())}
    assert records[6]["skipped_rows"] == [[12, 13], [14, 15]]
    assert any("rows [12, 13), [14, 15)" in line for line in lines)


def test_the_newest_and_every_so_many_checkpoints_are_kept(tmp_path: Path) -> None:
    with Checkpoints(str(tmp_path / "c"), keep=2, keep_every=4) as checkpoints:
        for step in range(1, 11):
            checkpoints.save(step, state(step), {"rows": step})
    assert [commit.step for commit in commits(str(tmp_path / "c"))[0]] == [10, 9, 8, 4]
    with Checkpoints(str(tmp_path / "p"), keep=1) as checkpoints:
        for step, protected in ((1, 1), (2, 1), (3, 2), (4, 2)):
            checkpoints.protected.clear()
            checkpoints.protected.add(protected)
            checkpoints.save(step, state(step), {"rows": step})
    assert [commit.step for commit in commits(str(tmp_path / "p"))[0]] == [4, 2]
    with pytest.raises(ValueError, match="keep_every_steps is 30: expected a multiple of checkpoint_every_steps, 20"):
        TrainConfig(checkpoint_every_steps=20, keep_every_steps=30)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@ORBAX_COMPLAINS
def test_a_full_disk_is_one_line_the_last_checkpoint_stays_and_the_run_goes_on_once_there_is_room(
    tmp_path: Path, small_disk: Path, run_here: RunHere, small_recipe: Recipes, read_losses: Losses
) -> None:
    run_here(small_recipe(), tmp_path / "whole")
    run, ballast = small_disk / "run", small_disk / "ballast"

    def committed_at_4() -> bool:
        deadline = time.monotonic() + 60
        while newest_commit(str(run / "checkpoints")) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return newest_commit(str(run / "checkpoints")) is not None

    def fill(batches: Iterator[dict]) -> Iterator[dict]:
        for number, batch in enumerate(batches):
            if number == 6:
                assert committed_at_4(), "the checkpoint of step 4 never came"
                free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
                ballast.write_bytes(b"x" * (free - 100_000))
            yield batch

    with pytest.raises(TrainingStopped, match=r"[Nn]o space|ENOSPC|RESOURCE_EXHAUSTED") as stopped:
        run_here(small_recipe(), run, feed=fill)
    assert "\n" not in str(stopped.value)
    assert "run the same command again" in str(stopped.value)
    newest = newest_commit(str(run / "checkpoints"))
    assert newest is not None
    assert newest.step == 4
    ballast.unlink()
    assert run_here(small_recipe(), run)["first_step"] == 4
    assert read_losses(run) == read_losses(tmp_path / "whole")


def test_a_wall_clock_that_jumps_changes_no_loss_no_speed_and_no_goodput(
    tmp_path: Path, run_here: RunHere, small_recipe: Recipes, read_losses: Losses, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here(small_recipe(), tmp_path / "steady")
    real, off = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + off[0])

    def jumping(batches: Iterator[dict]) -> Iterator[dict]:
        for number, batch in enumerate(batches):
            off[0] += {2: 5_000.0, 6: -9_000.0, 10: 20_000.0}.get(number, 0.0)  # one save at most sees it jump ahead
            yield batch

    began = time.monotonic()
    result = run_here(small_recipe(), tmp_path / "odd", feed=jumping)
    took = time.monotonic() - began
    assert read_losses(tmp_path / "odd") == read_losses(tmp_path / "steady")
    assert 0 < result["goodput"]["goodput"] <= 1
    assert result["goodput"]["wall_s"] <= took
    for line in (tmp_path / "odd" / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert record["eta_s"] is None or 0 <= record["eta_s"] < 1000


def test_a_save_that_an_odd_clock_ends_is_made_up_for_by_the_next_and_two_in_a_row_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import orbax.checkpoint as ocp

    real, late = ocp.CheckpointManager.wait_until_finished, [False]

    def wait(self: ocp.CheckpointManager) -> None:
        real(self)
        if late[0]:
            raise TimeoutError("timed out after 8073049.00 seconds")

    monkeypatch.setattr(ocp.CheckpointManager, "wait_until_finished", wait)
    with Checkpoints(str(tmp_path / "c"), keep=9) as checkpoints:
        for step, ends_late in ((1, True), (2, False), (3, True)):
            checkpoints.save(step, state(step), {"rows": step})
            late[0] = ends_late
            checkpoints.wait()
            late[0] = False
        assert "checkpoint 1 was not saved in time" in caplog.text
        assert "checkpoint 2 was not" not in caplog.text
        checkpoints.save(4, state(4), {"rows": 4})
        late[0] = True
        with pytest.raises(SaveFailed, match=r"could not save checkpoint 4 .*timed out"):
            checkpoints.wait()
        late[0] = False


def test_a_resumed_run_says_where_its_time_went_over_both_attempts(
    tmp_path: Path, run_here: RunHere, small_recipe: Recipes
) -> None:
    with pytest.raises(Killed):
        run_here(small_recipe(), tmp_path / "run", feed=killed_after(7))
    time_down = 0.3
    deadline = time.monotonic() + time_down
    while time.monotonic() < deadline:
        pass
    lines: list[str] = []
    result = run_here(small_recipe(eval_every_steps=6), tmp_path / "run", lines=lines)
    found = result["goodput"]
    assert (found["attempts"], found["replayed_steps"]) == (2, 2)
    assert found["seconds"]["restart"] >= time_down
    for item in ("useful", "replayed", "first_step", "checkpoint", "evaluation", "data"):
        assert found["seconds"][item] > 0, item
    assert sum(found["seconds"].values()) == pytest.approx(found["wall_s"])
    assert any(line.startswith("goodput ") and "2 attempt(s), 2 step(s) replayed" in line for line in lines)


@ORBAX_COMPLAINS
@pytest.mark.parametrize(
    "tear",
    [
        "half an array file",
        *(pytest.param(t, marks=pytest.mark.slow) for t in ("an array file", "no data", "empty plan", "no commit")),
    ],
)
def test_a_run_passes_over_a_newest_checkpoint_torn_in_any_way_and_says_so(
    tear: str, tmp_path: Path, run_here: RunHere, small_recipe: Recipes, read_losses: Losses
) -> None:
    import shutil

    run_here(small_recipe(), tmp_path / "run")
    losses = read_losses(tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    newest = tmp_path / "run" / "checkpoints" / "12"
    data = sorted((newest / "state").rglob("d/*"), key=lambda path: -path.stat().st_size)
    if tear == "an array file":
        data[0].unlink()
    elif tear == "half an array file":
        data[0].write_bytes(data[0].read_bytes()[: data[0].stat().st_size // 2])
    elif tear == "no data":
        for folder in {path.parent for path in data}:
            shutil.rmtree(folder)
    elif tear == "empty plan":
        (newest / "plan" / "metadata").write_bytes(b"")
    else:
        (newest / "state" / "_METADATA").write_bytes(b"")
    lines: list[str] = []
    result = run_here(small_recipe(), tmp_path / "run", lines=lines)
    assert result["first_step"] == 8
    assert read_losses(tmp_path / "run") == losses
    assert any("ignored" in line and "12" in line for line in lines), lines


def test_an_error_of_the_storage_says_nothing_about_a_checkpoint(
    tmp_path: Path, run_here: RunHere, small_recipe: Recipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here(small_recipe(), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()

    def fails(*arguments: Any, **options: Any) -> None:
        raise OSError(5, "stale handle")

    with monkeypatch.context() as broken:
        broken.setattr(ocp.CheckpointManager, "restore", fails)
        with pytest.raises(OSError, match="stale handle"):
            run_here(small_recipe(), tmp_path / "run")
    assert run_here(small_recipe(), tmp_path / "run")["first_step"] == 12


@ORBAX_COMPLAINS
def test_a_run_whose_checkpoints_are_all_damaged_stops_instead_of_beginning_anew(
    tmp_path: Path, run_here: RunHere, small_recipe: Recipes
) -> None:
    run_here(small_recipe(), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    for path in (tmp_path / "run" / "checkpoints").rglob("d/*"):
        path.write_bytes(b"")
    for _ in range(2):  # also when only what was put aside is left
        with pytest.raises(TrainingStopped, match=r"none of the 2 checkpoints .* begin again at step 0"):
            run_here(small_recipe(), tmp_path / "run")


def test_dataclasses_of_a_run_keep_their_identity_whatever_the_cluster_is(small_recipe: Recipes) -> None:
    recipe = small_recipe()
    elastic = dataclasses.replace(recipe.mesh, num_workers=4, min_workers=2, resize_check_s=1.0)
    often = dataclasses.replace(recipe.train, keep_every_steps=8, preemption_every_steps=5)
    assert dataclasses.replace(recipe, mesh=elastic, train=often).hash == recipe.hash


@pytest.mark.parametrize("torn", ['{"step', "[]", "{}"])
@pytest.mark.parametrize("name", ["recipe.json", "result.json"])
def test_a_small_file_of_a_run_that_is_torn_is_named_with_what_to_do(
    tmp_path: Path, corpus: Path, small_recipe: Callable[..., Recipe], name: str, torn: str
) -> None:
    run = Run(small_recipe(), str(corpus), str(tmp_path))
    prepare(run)
    (tmp_path / name).write_text(torn)
    what = "copy it again .*, or, .* delete it and" if name == "recipe.json" else "delete it, then"
    what += " run the same command again"
    with pytest.raises(RunFolderError, match=f"{name} is damaged .*: {what}"):
        prepare(run)
    (tmp_path / name).unlink()
    assert prepare(run) is None
    json.loads((tmp_path / "recipe.json").read_text())


def test_the_tokenizer_of_the_run_is_found_from_a_checkpoint_in_a_bucket() -> None:
    fs, folder = fsspec.filesystem("memory"), f"memory://runs/{uuid.uuid4().hex}"
    fs.pipe_file(f"{folder}/tokenizer.json", b"{}")
    fs.pipe_file(f"{folder}/checkpoints/12/plan/metadata", b"{}")
    assert tokenizer_of(folder) == tokenizer_of(f"{folder}/checkpoints/12") == b"{}"
    assert tokenizer_of("memory://runs/none") is None


def test_a_damaged_line_of_the_metrics_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"loss": 1.0}\n')
    with pytest.raises(RunFolderError, match=r"metrics.jsonl, line 2 is damaged .*: delete that line"):
        MetricsLog(str(tmp_path / "metrics.jsonl"))
