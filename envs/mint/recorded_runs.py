"""MINT's published runs: how to replay each log file, and how far replays must agree with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from envs.mint.recording import is_mint_recording, subset_of
from lemur_ray.agents.replay_goals import Goal, PublishedRuns, RecordedRun, StrictReplays

_GOALS = (
    Goal("MINT graded again: solved alike", "mint/.*", 0.999, mode="grading"),
    Goal("MINT: counters alike", "mint/.*", 1.0, part="same_counters", mode="grading"),
    Goal("MINT: ends alike", "mint/.*", 1.0, part="same_terminate_reason", mode="grading"),
    Goal("MINT: count-down lines alike", "mint/.*", 1.0, "same_count_downs", "count_downs", mode="grading"),
    Goal("MINT played again: cells without search alike", "mint/.*", 0.97, "same_cells", "cells", mode="strict"),
    Goal("ALFWorld, by `done`: solved alike", "mint/alfworld", 1.0, mode="grading"),
)


def _runs_of_file(file: Path, name: str, strict: StrictReplays) -> Iterator[RecordedRun]:
    """Yield the replays of a log: graded again; if ``strict`` selects it and it has no feedback, also run again."""
    subset = subset_of(file)
    if not subset or not is_mint_recording(file):
        return
    yield RecordedRun(file, name, f"mint/{subset}", "grading")
    again = strict == "all" or (strict == "lemur" and "lemur" in file.parent.parent.name.lower())
    # Of ALFWorld every replay runs the code: it is what plays the game.
    if again and subset != "alfworld" and file.parent.name == "F=None":
        yield RecordedRun(file, f"{name} (strict)", f"mint/{subset}", "strict")


RUNS = PublishedRuns(_runs_of_file, _GOALS)
