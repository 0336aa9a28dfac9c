"""Profiler traces on demand: they appear, and neither they nor their failure change a run."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from fsspec.implementations.local import LocalFileSystem

from lemur_ray.config import Recipe
from lemur_ray.config.watching import WatchConfig
from tests.train.clock_fields import CLOCK

RunHere = Callable[..., dict]


def values(out: Path) -> list[dict]:
    """The lines of metrics without what depends on the clock."""
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key not in CLOCK} for record in records]


def test_a_trace_is_written_for_the_steps_of_the_recipe_and_for_a_request_and_no_line_changes(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe]
) -> None:
    out = tmp_path / "run"
    run_here(small_recipe(), tmp_path / "plain")

    def asks(batches: Iterator) -> Iterator:
        for number, batch in enumerate(batches):
            if number == 8:
                (out / "profile").write_text("2\n")
            yield batch

    said: list[str] = []
    recipe = dataclasses.replace(small_recipe(), watch=WatchConfig(profile_first_step=3, profile_steps=3))
    run_here(recipe, out, feed=asks, lines=said)
    assert [line for line in said if line.startswith("profiled")] == [
        f"profiled steps 3 to 5: {out}/profiles/step-3",
        f"profiled steps 9 to 10: {out}/profiles/step-9",
    ]
    for first in (3, 9):
        [trace] = (out / "profiles" / f"step-{first}").rglob("*.xplane.pb")
        assert trace.stat().st_size > 1000
        # To see Python's calls, XLA sets hooks in the states of threads that are being made, which can end the process.
        assert b".py:" not in trace.read_bytes()
    assert not (out / "profile").exists(), "the request was not answered"
    assert values(out) == values(tmp_path / "plain")


def test_a_trace_that_is_open_at_the_end_is_closed(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe]
) -> None:
    recipe = dataclasses.replace(small_recipe(), watch=WatchConfig(profile_first_step=11))
    run_here(recipe, tmp_path / "run")
    assert list((tmp_path / "run" / "profiles" / "step-11").rglob("*.xplane.pb"))


def test_a_profiler_that_fails_is_said_once_and_the_run_goes_on(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("Profile has already been started.")

    monkeypatch.setattr(jax.profiler, "start_trace", busy)
    said: list[str] = []
    recipe = dataclasses.replace(small_recipe(), watch=WatchConfig(profile_first_step=3))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "profile").touch()
    result = run_here(recipe, tmp_path / "run", lines=said)
    assert result["steps"] == 12
    assert len([line for line in said if "no profiler trace" in line]) == 1


def test_a_request_that_cannot_be_removed_neither_ends_the_run_nor_is_answered_twice(
    tmp_path: Path, run_here: RunHere, small_recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_right(self: LocalFileSystem, path: str) -> None:
        if path.endswith("/profile"):
            raise PermissionError(path)
        Path(path).unlink()

    monkeypatch.setattr(LocalFileSystem, "rm_file", no_right)
    said: list[str] = []
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "profile").write_text("2\n")
    result = run_here(small_recipe(), tmp_path / "run", lines=said)
    assert result["steps"] == 12
    assert [line for line in said if "profile" in line] == [f"profiled steps 1 to 2: {tmp_path}/run/profiles/step-1"]


def test_only_the_first_worker_profiles_unless_all_are_asked(
    tmp_path: Path, small_recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lemur_ray.train.run.profiler import Profiler

    started: list[str] = []
    monkeypatch.setattr(jax.profiler, "start_trace", lambda folder, **_: started.append(folder))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: None)
    for ranks, expected in (("first", 1), ("all", 3)):
        watch = WatchConfig(profile_first_step=2, profile_steps=1, profile_ranks=ranks)  # type: ignore[arg-type]
        started.clear()
        for rank in range(3):
            profiler = Profiler(
                dataclasses.replace(small_recipe(), watch=watch), str(tmp_path), rank, lambda line: None
            )
            profiler.before(1)
            assert not profiler.after(1, None)
            profiler.before(2)
            profiler.after(2, None)
        assert len(started) == expected
