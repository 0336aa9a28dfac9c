"""Every recorded run beside what it came to when it was played again: which runs there are, what they must reach.

A run's command line follows from where its file lies and what it is called, as mint-bench and InterCode name theirs. A
goal is asked of all runs it is about together; an episode that could not be scored counts against it. Knows no
environment and plays nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lemur_ray.agents.mint_replay import is_mint_log, subset_of

Strict = Literal["none", "lemur", "all"]
_INTERCODE = re.compile(r"ic_(sql|bash|ctf|python)_")
_BY_ORDER = ("vicuna", "starchat")
"""Models whose SQL runs were rewarded by overlap times order."""


@dataclass(frozen=True)
class FidelityConfig:
    """Play recorded runs again and compare; the same command again goes on where it stopped."""

    data: str = field(default_factory=lambda: os.environ.get("LEMUR_DATA", ""))
    """Folder of outside data sets (default $LEMUR_DATA); every recorded run beneath it is found by its name."""
    out: str = ""
    """Folder of the table and of one folder for each run. Empty: LEMUR_HOME/fidelity."""
    only: str = ""
    """Only runs whose path beneath the data holds this text, for example mint/outputs or fs_3."""
    strict: Strict = "lemur"
    """MINT: of which models' runs without feedback the code is run again, besides grading all."""
    engine: str = "sqlite"
    """InterCode-SQL: sqlite, or mysql:URL."""
    sandbox: Literal["bwrap", "docker"] = "bwrap"
    """Where Bash actions and code are run."""
    limit: int = 0
    """Episodes of each run, the first ones. 0: all."""
    in_flight: int = 0
    """Episodes at the same time. 0: as many as there are processors, since commands and cells have wall time limits."""

    def __post_init__(self) -> None:
        if self.limit < 0 or self.in_flight < 0:
            raise ValueError(f"limit {self.limit}, in_flight {self.in_flight}: expected 0 or more")
        if not self.data:
            raise ValueError("no data: say where the recorded runs are, --data DIR or LEMUR_DATA")

    @property
    def under(self) -> frozenset[str]:
        """What goals depend on: the kind of SQL engine and the sandbox's backend."""
        return frozenset({self.engine.partition(":")[0], self.sandbox})

    def arguments(self, run: RecordedRun) -> list[str]:
        """What of this ``jobs/agent_eval.py`` is told about a run."""
        in_flight = self.in_flight or os.cpu_count() or 1
        engine = ["--engine", self.engine] if run.benchmark == "intercode/sql" else []
        common = ["--sandbox", self.sandbox, "--actors", "0", "--step-s", "180"]
        return ["--limit", str(self.limit), "--in-flight", str(in_flight), *common, *engine]


@dataclass(frozen=True)
class RecordedRun:
    """A recorded file and how it is played again. ``name``: its path beneath the data, with the mode."""

    file: Path
    name: str
    benchmark: str
    mode: Literal["grading", "strict"]
    flags: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Name of its output folder."""
        return re.sub(r"[^A-Za-z0-9.=_-]+", "-", f"{self.name}")

    def arguments(self) -> list[str]:
        """What ``jobs/agent_eval.py`` is told."""
        return ["--benchmark", self.benchmark, "--policy", f"replay:{self.file}", "--replay", self.mode, *self.flags]


@dataclass(frozen=True)
class Goal:
    """A share that runs must reach. ``part``, ``whole``: names in the counts of a run's result."""

    name: str
    benchmark: str
    """Pattern of the benchmarks that it is about."""
    target: float
    part: str = "same_success"
    whole: str = "episodes"
    mode: str = "strict|grading"
    file: str = ""
    """Pattern of the names that it is about."""
    under: str = ""
    """Asked only under this SQL engine (sqlite, mysql) or in this sandbox (bwrap, docker)."""

    def concerns(self, run: RecordedRun) -> bool:
        return (
            re.fullmatch(self.benchmark, run.benchmark) is not None
            and re.fullmatch(self.mode, run.mode) is not None
            and re.search(self.file, run.name) is not None
        )


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


def recorded_runs(data: Path, *, strict: Strict = "lemur") -> Iterator[RecordedRun]:
    """Every recorded run beneath a folder that can be played again, in order of path.

    ``strict``: of which MINT runs without feedback the code is run again too. Raises FileNotFoundError.
    """
    if not data.is_dir():
        raise FileNotFoundError(f"{data}: no folder; give the one that holds mint and intercode (--data, LEMUR_DATA)")
    for file in sorted(path for path in data.rglob("*.json*") if path.is_file()):
        name = file.relative_to(data).as_posix().split(".json")[0]
        if subset := subset_of(file):
            if not is_mint_log(file):
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


def counts_of(result: Mapping[str, Any]) -> dict[str, int]:
    """Counts of a run's result that goals speak of; ``missing`` episodes are among ``episodes``."""
    counts = dict(result.get("agreement_counts", {}))
    counts["missing"] = int(result.get("missing", 0))
    counts["episodes"] = counts.get("episodes", 0) + counts["missing"]
    cells = {kind: n for kind, n in result.get("observation_counts", {}).items() if kind in _CELLS}
    return counts | {"cells": sum(cells.values()), "same_cells": sum(cells.values()) - cells.get("different", 0)}


_CELLS = ("exact", "normalised", "same_error", "different")


def fidelity(
    results: Sequence[tuple[RecordedRun, Mapping[str, Any]]], under: Collection[str], *, whole_runs: bool = True
) -> dict[str, Any]:
    """Rows of runs and of goals as JSON values; a goal without a run has no share and is not reached or missed.

    ``under``: kind of SQL engine and backend of the sandbox. ``whole_runs``: False where only the first episodes of
    each run were played; then shares are shown and no goal is reached or missed.
    """
    runs = [{"run": run.name, "benchmark": run.benchmark, **_row(result)} for run, result in results]
    goals = []
    for goal in GOALS:
        if goal.under and goal.under not in under:
            continue
        counts = [counts_of(result) for run, result in results if goal.concerns(run)]
        part, whole = (sum(count.get(key, 0) for count in counts) for key in (goal.part, goal.whole))
        share = part / whole if whole else None
        reached = share >= goal.target if share is not None and whole_runs else None
        row = {"goal": goal.name, "runs": len(counts), "equal": part, "of": whole, "share": share}
        goals.append({**row, "target": goal.target, "reached": reached})
    return {"goals": goals, "runs": runs, "whole_runs": whole_runs}


def _row(result: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in result:
        return {"error": result["error"]}
    counts = counts_of(result)
    names = ("episodes", "missing", "same_success", "recorded_solved", "solved")
    row: dict[str, Any] = {name: counts.get(name) for name in names}
    row["agreement"] = counts["same_success"] / counts["episodes"] if counts["episodes"] else None
    row["cells"] = counts["same_cells"] / counts["cells"] if counts["cells"] else None
    return {**row, "reward_agreement": result.get("reward_agreement"), "differing": list(result.get("differing", []))}
