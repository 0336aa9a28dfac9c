"""What a check may look at, and what it answers.

Knows nothing of any check.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Status = Literal["ok", "warn", "missing"]


@dataclass(frozen=True)
class Check:
    """The answer of one check. ``required``: without it nothing runs. ``fix``: a command, empty where there is none."""

    name: str
    status: Status
    found: str
    fix: str = ""
    required: bool = False


def _run(command: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """Exit code and output of a command; 127 where it does not exist, 124 where it took too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, errors="replace")
    except FileNotFoundError:
        return 127, "not found"
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {timeout_s:.0f} s"
    return done.returncode, (done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Machine:
    """Everything a check may look at; tests pass their own."""

    root: Path
    """The folder of the repository (or of the installed packages)."""
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    home: Path = field(default_factory=Path.home)
    python: tuple[int, int, int] = sys.version_info[:3]
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    system: Path = Path("/")
    """Where /proc, /sys and /dev are looked for."""
    run: Callable[[Sequence[str], float], tuple[int, str]] = _run
    which: Callable[[str], str | None] = shutil.which
    version: Callable[[str], str | None] = _version
    disk: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free

    def read(self, path: str) -> str:
        """Text of a system file, empty where there is none."""
        try:
            return (self.system / path).read_text()
        except OSError:
            return ""


def last_line(text: str) -> str:
    """The last line of what a command said."""
    return text.strip().splitlines()[-1][:300] if text.strip() else "no output"
