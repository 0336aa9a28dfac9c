"""A control group for a sandbox where this process may make one: memory summed over all processes, and their number.

Version 1 needs the writable hierarchies ``memory`` and ``pids``; version 2 a group whose children have the controller
``memory``. Where there is neither, ``make`` gives None and the caller watches memory itself. Where processors can be
shared by groups (``cpu``), a sandbox is one among all others to the scheduler however many processes it starts: a crowd
in one starves no other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
PREFIX = "lemur-sandbox-"
NEEDED = {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.shares"}
"""What a group of a version 1 hierarchy must have; one of version 2 must have ``memory.max``."""
EVENTS = ("memory.events", "memory.oom_control")
"""Files that count what the kernel killed, of version 2 and 1."""


@dataclass(frozen=True)
class Cgroup:
    """Folders of one group; a process joins by writing its number to each of ``joins``."""

    folders: tuple[Path, ...]

    @property
    def joins(self) -> list[Path]:
        return [folder / "cgroup.procs" for folder in self.folders]

    def oom_kills(self) -> int:
        """Processes that the kernel killed because the group's memory was used up."""
        for folder in self.folders:
            for name in EVENTS:
                with contextlib.suppress(OSError):
                    for line in (folder / name).read_text().splitlines():
                        if line.startswith("oom_kill "):
                            return int(line.split()[1])
        return 0

    def clear(self) -> bool:
        """Kill every process in it, then remove it: it is a dead run's. Whether it is gone."""
        for joined in self.joins:
            with contextlib.suppress(OSError):
                for pid in joined.read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
        return self.remove()

    def remove(self, timeout_s: float = 5.0) -> bool:
        """Remove the folders once their processes are gone; False where one stays in use after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        for folder in self.folders:
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.005)
                    continue
                break
        return not any(folder.exists() for folder in self.folders)


def make(name: str, memory_bytes: int, processes: int) -> Cgroup | None:
    """A group ``name`` with these limits; None where this machine does not let us.

    What is left of an earlier group of that name is ended first: its limits could forbid these.
    """
    parents = _parents()
    if not parents:
        return None
    made = []
    for parent in parents:
        folder = parent / f"{PREFIX}{name}"
        if folder.exists():
            Cgroup((folder,)).clear()
        folder.mkdir(exist_ok=True)
        made.append(folder)
        for file, value in _settings(folder, memory_bytes, processes):
            (folder / file).write_text(str(value))
    return Cgroup(tuple(made))


def bounds_memory() -> bool:
    """Whether ``make`` gives groups here; they bound the sum of memory."""
    return bool(_parents())


def of_process(pid: int) -> Cgroup | None:
    """The group with the memory of a process, made by somebody else; None where it cannot be seen from here."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for top in (MOUNT / controllers, MOUNT / "unified"):
                folder = top / path.lstrip("/")
                if any((folder / name).exists() for name in EVENTS):
                    return Cgroup((folder,))
    return None


def _settings(folder: Path, memory_bytes: int, processes: int) -> Iterator[tuple[str, int | str]]:
    wanted: list[tuple[str, int | str]] = [
        ("memory.limit_in_bytes", memory_bytes),
        ("memory.memsw.limit_in_bytes", memory_bytes),
        ("memory.max", memory_bytes),
        ("memory.swap.max", 0),
        ("pids.max", processes),
    ]
    return ((file, value) for file, value in wanted if (folder / file).exists())


_trying = threading.Lock()


def _parents() -> tuple[Path, ...]:
    """Where groups can be made, tried out once."""
    with _trying:  # two threads that try at once would find each other's probe in the way
        return _tried()


@cache
def _tried() -> tuple[Path, ...]:
    both = (MOUNT / "memory", MOUNT / "pids")
    for parents in (both, (MOUNT,)):
        if all(_works(parent) for parent in parents):
            return (*parents, MOUNT / "cpu") if parents == both and _works(MOUNT / "cpu") else parents
    return ()


def _works(parent: Path) -> bool:
    """Whether a child of ``parent`` can be made, bounded and joined."""
    folder = parent / f"{PREFIX}probe-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        return False
    try:
        if not (folder / NEEDED.get(parent.name, "memory.max")).exists():
            return False
        joined = subprocess.run(["sh", "-c", f"echo $$ > {folder}/cgroup.procs"], stderr=subprocess.DEVNULL)
        return joined.returncode == 0
    except OSError:
        return False
    finally:
        Cgroup((folder,)).remove()
