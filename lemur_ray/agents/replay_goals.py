"""Recorded runs on disk and the agreement that replays must reach: declared by benchmarks, for ``jobs/fidelity.py``.

Knows no benchmark and plays nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lemur_ray.agents.recording import ReplayMode

StrictReplays = Literal["none", "lemur", "all"]
"""Models whose recorded code is executed again; other replays only grade"""


@dataclass(frozen=True)
class RecordedRun:
    """A recorded file and how it is replayed. ``name``: its path beneath the data, with the mode."""

    file: Path
    name: str
    benchmark: str
    mode: ReplayMode
    flags: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Name of its output folder."""
        return re.sub(r"[^A-Za-z0-9.=_-]+", "-", f"{self.name}")

    def arguments(self) -> list[str]:
        """The command line for ``jobs/agent_eval.py``."""
        return ["--benchmark", self.benchmark, "--policy", f"replay:{self.file}", "--replay", self.mode, *self.flags]


@dataclass(frozen=True)
class Goal:
    """A share that replays must reach. ``part``, ``whole``: names of counts in a run's result."""

    name: str
    benchmark: str
    """Regular expression of benchmark names"""
    target: float
    part: str = "same_success"
    whole: str = "episodes"
    mode: str = "strict|grading"
    file: str = ""
    """Regular expression of run names"""
    under: str = ""
    """SQL engine (sqlite, mysql) or sandbox (bwrap, docker) that the goal is limited to; empty: any"""

    def concerns(self, run: RecordedRun) -> bool:
        return (
            re.fullmatch(self.benchmark, run.benchmark) is not None
            and re.fullmatch(self.mode, run.mode) is not None
            and re.search(self.file, run.name) is not None
        )


@dataclass(frozen=True)
class PublishedRuns:
    """The runs that the authors of a family of benchmarks published. ``of_file``: those of one file, by its path and
    its name beneath the data without endings; none where it is no such file."""

    of_file: Callable[[Path, str, StrictReplays], Iterable[RecordedRun]]
    goals: tuple[Goal, ...]
