"""What tests need to know of processes: who descends from whom, and whether they are gone. Linux."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def parents() -> dict[int, int]:
    """Every process -> its parent."""
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):  # of a longer pattern, glob itself looks at processes that end
        try:
            found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended while we looked
    return found


def descendants(pid: int) -> dict[int, str]:
    """Processes below ``pid`` -> their command lines."""
    parent_of = parents()
    found: dict[int, str] = {}
    for child in parent_of:
        ancestor = child
        while ancestor in parent_of and ancestor != pid:
            ancestor = parent_of[ancestor]
        if ancestor == pid and child != pid:
            found[child] = command_line(child)
    return found


def command_line(pid: int) -> str:
    """Empty for a process that is gone, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def wait_while_it_runs(process: subprocess.Popen[Any], what: Callable[[], bool], timeout_s: float, log: Path) -> None:
    """Until ``what`` is so; fails with the end of ``log`` where the process ends first, or after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not what():
        assert process.poll() is None, f"ended too soon:\n{log.read_text()[-3000:]}"
        assert time.monotonic() < deadline, f"not in {timeout_s} s:\n{log.read_text()[-3000:]}"
        time.sleep(0.002)


def wait_until_gone(pids: list[int], timeout_s: float) -> list[int]:
    """Those of ``pids`` that still run after at most ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while (left := [pid for pid in pids if command_line(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def kill_hard(pid: int) -> None:
    os.kill(pid, 9)
