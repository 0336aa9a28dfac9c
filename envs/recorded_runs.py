"""Which recorded runs there are beneath a folder of data, how each is replayed, and what their replays must reach.

A run's command line follows from where its file lies and what it is called, as mint-bench and InterCode name theirs. A
goal is asked of all runs it is about together. Plays nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from envs.mint.recording import is_mint_recording, subset_of
from lemur_ray.agents.replay_goals import Goal, RecordedRun, StrictReplays

_INTERCODE = re.compile(r"ic_(sql|bash|ctf|python)_")
_BY_ORDER = ("vicuna", "starchat")
"""Models whose SQL runs were rewarded by overlap times order."""

_GPT_HANDICAP, _GPT_BASH = r"gpt-3\.5.*10_turns_handicap", r"gpt-3\.5.*fs_[134]"
GOALS = (
    Goal("SQL, gpt-3.5, 10 turns, handicap: solved alike", "intercode/sql", 0.989, file=_GPT_HANDICAP, under="sqlite"),
    Goal("SQL, gpt-3.5, 10 turns, handicap: solved alike", "intercode/sql", 0.993, file=_GPT_HANDICAP, under="mysql"),
    Goal("SQL, vicuna: solved alike", "intercode/sql", 0.998, file="vicuna", under="mysql"),
    Goal("SQL, text-bison, handicap: solved alike", "intercode/sql", 0.990, file="bison.*handicap", under="mysql"),
    Goal("Bash, gpt-3.5, fs 1, 3, 4: solved alike", "intercode/bash", 0.92, file=_GPT_BASH, under="bwrap"),
    Goal("Bash, gpt-3.5, fs 1, 3, 4: solved alike", "intercode/bash", 0.93, file=_GPT_BASH, under="docker"),
    Goal("CTF: rewards alike", "intercode/ctf", 1.0, part="same_reward", whole="turns"),
    Goal("MINT graded again: solved alike", "mint/.*", 0.999, mode="grading"),
    Goal("MINT: counters alike", "mint/.*", 1.0, part="same_counters", mode="grading"),
    Goal("MINT: ends alike", "mint/.*", 1.0, part="same_terminate_reason", mode="grading"),
    Goal("MINT: count-down lines alike", "mint/.*", 1.0, "same_count_downs", "count_downs", mode="grading"),
    Goal("MINT played again: cells without search alike", "mint/.*", 0.97, "same_cells", "cells", mode="strict"),
    Goal("ALFWorld, by `done`: solved alike", "mint/alfworld", 1.0, mode="grading"),
)


def recorded_runs(data: Path, *, strict: StrictReplays = "lemur") -> Iterator[RecordedRun]:
    """Every recorded run beneath a folder that can be played again, in order of path.

    ``strict``: of which MINT runs without feedback the code is run again too. Raises FileNotFoundError.
    """
    if not data.is_dir():
        raise FileNotFoundError(f"{data}: no folder; give the one that holds mint and intercode (--data, LEMUR_DATA)")
    for file in sorted(path for path in data.rglob("*.json*") if path.is_file()):
        name = file.relative_to(data).as_posix().split(".json")[0]
        if subset := subset_of(file):
            if not is_mint_recording(file):
                continue
            yield RecordedRun(file, name, f"mint/{subset}", "grading")
            again = strict == "all" or (strict == "lemur" and "lemur" in file.parent.parent.name.lower())
            # Of ALFWorld every replay runs the code: it is what plays the game.
            if again and subset != "alfworld" and file.parent.name == "F=None":
                yield RecordedRun(file, f"{name} (strict)", f"mint/{subset}", "strict")
        elif (found := _INTERCODE.match(file.name)) and "_react_" not in file.name:
            yield _of_intercode(file, name, found[1])


def _of_intercode(file: Path, name: str, kind: str) -> RecordedRun:
    flags: tuple[str, ...] = ()
    if kind == "sql":
        order = "tau" if any(model in name for model in _BY_ORDER) else "iou"
        flags = ("--reward", order, *(("--handicap",) if "handicap" in name else ()))
    elif kind == "bash":
        flags = ("--compat",)
    return RecordedRun(file, name, f"intercode/{kind}", "grading" if kind == "ctf" else "strict", flags)
