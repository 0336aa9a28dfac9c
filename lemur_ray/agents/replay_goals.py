"""Recorded runs on disk and the agreement that replays must reach: declared by benchmarks, for ``jobs/fidelity.py``."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lemur_ray.agents.recording import ReplayMode

StrictReplays = Literal["none", "lemur", "all"]
"""Models whose recorded code is executed again (strict replay); replays of all others only grade"""


@dataclass(frozen=True)
class RecordedRun:
    """A recorded file of a benchmark and how it is replayed. ``name``: the file's path below the data folder, with the
    replay mode; ``flags``: further command-line arguments."""

    file: Path
    name: str
    benchmark: str
    mode: ReplayMode
    flags: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Name of the replay's output folder."""
        return re.sub(r"[^A-Za-z0-9.=_-]+", "-", f"{self.name}")

    def arguments(self) -> list[str]:
        """Command-line arguments of ``jobs/agent_eval.py`` that replay the run."""
        return ["--benchmark", self.benchmark, "--policy", f"replay:{self.file}", "--replay", self.mode, *self.flags]


@dataclass(frozen=True)
class Goal:
    """A share of counts, ``part`` / ``whole``, that the replays of some runs must reach: at least ``target``. Which
    runs: ``benchmark``, ``mode`` and ``file`` are regular expressions; ``under``: SQL engine or sandbox."""

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
    """Only replays with this SQL engine (sqlite, mysql) or sandbox (bwrap, docker); empty: any"""

    def concerns(self, run: RecordedRun) -> bool:
        return (
            re.fullmatch(self.benchmark, run.benchmark) is not None
            and re.fullmatch(self.mode, run.mode) is not None
            and re.search(self.file, run.name) is not None
        )


@dataclass(frozen=True)
class PublishedRuns:
    """Runs that a benchmark family's authors published, and the ``goals`` of their replays. ``of_file``: returns the
    runs recorded in a file, given its path, its name below the data folder without endings, and the models to replay
    strictly; empty for any other file."""

    of_file: Callable[[Path, str, StrictReplays], Iterable[RecordedRun]]
    goals: tuple[Goal, ...]
