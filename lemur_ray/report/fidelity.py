"""Results of replays of recorded runs, and the goals that they must reach.

A goal is a share over all runs that it concerns; an episode without a score counts against it. Plays nothing."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lemur_ray.agents.replay_comparison import LIKENESS
from lemur_ray.agents.replay_goals import Goal, RecordedRun, StrictReplays
from lemur_ray.host.home import outside_data


@dataclass(frozen=True)
class FidelityConfig:
    """Replay recorded runs and compare; the same command again goes on where it stopped."""

    data: str = field(default_factory=lambda: os.environ.get("LEMUR_DATA", ""))
    """Folder of outside data sets (default $LEMUR_DATA, else LEMUR_HOME/data) that is searched for recorded runs."""
    out: str = ""
    """Folder of the table and of one folder for each run, also gs:// or s3://. Empty: LEMUR_HOME/fidelity."""
    only: str = ""
    """Only runs whose path beneath the data holds this text, for example mint/outputs or fs_3."""
    strict: StrictReplays = "lemur"
    """MINT: models whose runs without feedback have their code run again; the answers of all runs are graded."""
    engine: str = "sqlite"
    """InterCode-SQL: sqlite, or mysql:URL."""
    sandbox: Literal["bwrap", "docker"] = "bwrap"
    """Sandbox backend for Bash actions and code."""
    limit: int = 0
    """Number of episodes of each run, from its beginning. 0: all."""
    in_flight: int = 0
    """Episodes at the same time. 0: number of processors, since commands and cells have wall time limits."""

    def __post_init__(self) -> None:
        if self.limit < 0 or self.in_flight < 0:
            raise ValueError(f"limit {self.limit}, in_flight {self.in_flight}: expected 0 or more")
        if outside_data(self.data) is None:
            raise ValueError("no data: name the folder of the recorded runs with --data DIR or LEMUR_DATA")

    @property
    def folder(self) -> Path:
        """The folder of downloaded data sets: ``data``, or the default if that is empty."""
        folder = outside_data(self.data)
        assert folder is not None, "__post_init__ refuses a config without data"
        return folder

    @property
    def under(self) -> frozenset[str]:
        """Conditions that goals can depend on: the SQL engine (sqlite, mysql) and the sandbox (bwrap, docker)."""
        return frozenset({self.engine.partition(":")[0], self.sandbox})

    def arguments(self, options: Collection[str]) -> list[str]:
        """Arguments of ``jobs/agent_eval.py`` for a run whose benchmark has these options."""
        own = {"sandbox": self.sandbox, "engine": self.engine}
        selected = [word for name, value in own.items() if name in options for word in (f"--{name}", value)]
        in_flight = self.in_flight or os.cpu_count() or 1
        common = ["--data", str(self.folder), "--actors", "0", "--step-s", "180"]
        return ["--limit", str(self.limit), "--sample", "first", "--in-flight", str(in_flight), *selected, *common]


def counts_of(result: Mapping[str, Any]) -> dict[str, int]:
    """Counts in ``result`` of one replay, by a ``Goal``'s names. ``episodes`` includes those without a score."""
    counts = dict(result.get("agreement_counts", {}))
    counts["missing"] = int(result.get("missing", 0))
    counts["episodes"] = counts.get("episodes", 0) + counts["missing"]
    cells = {kind: n for kind, n in result.get("observation_counts", {}).items() if kind in LIKENESS}
    return counts | {"cells": sum(cells.values()), "same_cells": sum(cells.values()) - cells.get("different", 0)}


def fidelity(
    results: Sequence[tuple[RecordedRun, Mapping[str, Any]]],
    goals: Sequence[Goal],
    under: Collection[str],
    *,
    whole_runs: bool = True,
) -> dict[str, Any]:
    """Rows of runs, and of goals with the shares over all their runs, as JSON values. ``under``: kind of SQL engine and
    backend of the sandbox; goals that are declared for another are left out. ``reached`` is None for a goal without a
    run. ``whole_runs``: False if only the first episodes of each run were played; then every ``reached`` is None."""
    runs = [{"run": run.name, "benchmark": run.benchmark, **_row(result)} for run, result in results]
    rows = []
    for goal in goals:
        if goal.under and goal.under not in under:
            continue
        counts = [counts_of(result) for run, result in results if goal.concerns(run)]
        part, whole = (sum(count.get(key, 0) for count in counts) for key in (goal.part, goal.whole))
        share = part / whole if whole else None
        reached = share >= goal.target if share is not None and whole_runs else None
        row = {"goal": goal.name, "runs": len(counts), "equal": part, "of": whole, "share": share}
        rows.append({**row, "target": goal.target, "reached": reached})
    return {"goals": rows, "runs": runs, "whole_runs": whole_runs}


def _row(result: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in result:
        return {"error": result["error"]}
    counts = counts_of(result)
    names = ("episodes", "missing", "same_success", "recorded_solved", "solved")
    row: dict[str, Any] = {name: counts.get(name) for name in names}
    row["agreement"] = counts["same_success"] / counts["episodes"] if counts["episodes"] else None
    row["cells"] = counts["same_cells"] / counts["cells"] if counts["cells"] else None
    return {**row, "reward_agreement": result.get("reward_agreement"), "differing": list(result.get("differing", []))}
