"""InterCode's published runs: how to replay each log file, and how far replays must agree with it.

A goal applies to all the runs that it matches together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lemur_ray.agents.replay_goals import Goal, PublishedRuns, RecordedRun, StrictReplays

_NAME = re.compile(r"ic_(sql|bash|ctf|python)_")
_BY_ORDER = ("vicuna", "starchat")
"""Models whose published SQL rewards are overlap times order (``--reward tau``)."""

_GPT_HANDICAP, _GPT_BASH = r"gpt-3\.5.*10_turns_handicap", r"gpt-3\.5.*fs_[134]"
_GOALS = (
    Goal("SQL, gpt-3.5, 10 turns, handicap: solved alike", "intercode/sql", 0.989, file=_GPT_HANDICAP, under="sqlite"),
    Goal("SQL, gpt-3.5, 10 turns, handicap: solved alike", "intercode/sql", 0.993, file=_GPT_HANDICAP, under="mysql"),
    Goal("SQL, vicuna: solved alike", "intercode/sql", 0.998, file="vicuna", under="mysql"),
    Goal("SQL, text-bison, handicap: solved alike", "intercode/sql", 0.990, file="bison.*handicap", under="mysql"),
    Goal("Bash, gpt-3.5, fs 1, 3, 4: solved alike", "intercode/bash", 0.92, file=_GPT_BASH, under="bwrap"),
    Goal("Bash, gpt-3.5, fs 1, 3, 4: solved alike", "intercode/bash", 0.93, file=_GPT_BASH, under="docker"),
    Goal("CTF: rewards alike", "intercode/ctf", 1.0, part="same_reward", whole="turns"),
)


def _runs_of_file(file: Path, name: str, strict: StrictReplays) -> Iterator[RecordedRun]:
    match = _NAME.match(file.name)
    if match is None or "_react_" in file.name:
        return
    kind = match[1]
    flags: tuple[str, ...] = ()
    if kind == "sql":
        order = "tau" if any(model in name for model in _BY_ORDER) else "iou"
        flags = ("--reward", order, *(("--handicap",) if "handicap" in name else ()))
    elif kind == "bash":
        flags = ("--compat",)
    yield RecordedRun(file, name, f"intercode/{kind}", "grading" if kind == "ctf" else "strict", flags)


RUNS = PublishedRuns(_runs_of_file, _GOALS)
