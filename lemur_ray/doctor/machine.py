"""Input and result of a check: ``Machine``, through which alone checks read the system, and ``Check``."""

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
    """Result of a check. ``found``: observed state. ``fix``: command, or "". ``required``: nothing runs without it."""

    name: str
    status: Status
    found: str
    fix: str = ""
    required: bool = False


def _run(command: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """Exit code and output of a command; 127 if it does not exist, 124 after ``timeout_s`` seconds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, errors="replace")
    except FileNotFoundError:
        return 127, "no such program"
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
    """Access to this machine: environment, system files, programs. Tests pass fakes for its functions: ``run(command,
    seconds)`` returns (exit status, output), ``which(program)`` its path, ``version(package)`` the installed version,
    both None if missing, and ``disk(folder)`` the free bytes."""

    root: Path
    """The folder of the repository (or of the installed packages)."""
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    home: Path = field(default_factory=Path.home)
    python: tuple[int, int, int] = sys.version_info[:3]
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    """Python's ``sys.path``, and (``python``) its version."""
    system: Path = Path("/")
    """The folder that holds /proc, /sys and /dev."""
    run: Callable[[Sequence[str], float], tuple[int, str]] = _run
    which: Callable[[str], str | None] = shutil.which
    version: Callable[[str], str | None] = _version
    disk: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free

    def read(self, path: str) -> str:
        """Text of a system file, given relative to / ("proc/meminfo"); empty if it cannot be read."""
        try:
            return (self.system / path).read_text()
        except OSError:
            return ""


def last_line(text: str) -> str:
    """The last line of a command's output that is not blank, cut to 300 characters; "no output" if there is none."""
    return text.strip().splitlines()[-1][:300] if text.strip() else "no output"
