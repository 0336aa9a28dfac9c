"""What tests need to know of processes: who descends from whom, and whether they are gone. Linux."""

from __future__ import annotations

import os
import time
from pathlib import Path


def descendants(pid: int) -> dict[int, str]:
    """Processes below ``pid`` -> their command lines."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found: dict[int, str] = {}
    for child in parents:
        ancestor = child
        while ancestor in parents and ancestor != pid:
            ancestor = parents[ancestor]
        if ancestor == pid and child != pid:
            found[child] = command_line(child)
    return found


def command_line(pid: int) -> str:
    """Empty for a process that is gone, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def wait_until_gone(pids: list[int], timeout_s: float) -> list[int]:
    """Those of ``pids`` that still run after at most ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while (left := [pid for pid in pids if command_line(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def kill_hard(pid: int) -> None:
    os.kill(pid, 9)
