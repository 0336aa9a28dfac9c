"""Control groups of sandboxes: limit the summed memory and the number of processes, if this process may create groups.

Version 1 needs the writable hierarchies ``memory`` and ``pids``; version 2 a group whose children have the controller
``memory``. Without either, ``make`` returns None and the caller watches memory itself. With the controller ``cpu``, all
sandboxes get equal shares of the processors, however many processes each starts."""

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
"""File that a group in a version 1 hierarchy must have; in version 2 it is ``memory.max``."""
EVENTS = ("memory.events", "memory.oom_control")
"""Files with the number of processes killed for memory, in version 2 and 1."""


@dataclass(frozen=True)
class Cgroup:
    """A control group: its folder in each hierarchy. A process joins by writing its pid to all files of ``joins``."""

    folders: tuple[Path, ...]

    @property
    def joins(self) -> list[Path]:
        return [folder / "cgroup.procs" for folder in self.folders]

    def oom_kills(self) -> int:
        """Number of processes that the kernel has killed because the group exceeded its memory; 0 if unreadable."""
        for folder in self.folders:
            for name in EVENTS:
                with contextlib.suppress(OSError):
                    for line in (folder / name).read_text().splitlines():
                        if line.startswith("oom_kill "):
                            return int(line.split()[1])
        return 0

    def clear(self) -> bool:
        """Send SIGKILL to every process of the group and remove the group. Returns whether it is gone within 5 s."""
        for joined in self.joins:
            with contextlib.suppress(OSError):
                for pid in joined.read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
        return self.remove()

    def remove(self, timeout_s: float = 5.0) -> bool:
        """Remove the group's folders, waiting up to ``timeout_s`` seconds for its processes to end (they are not
        killed). Returns whether all folders are gone."""
        deadline = time.monotonic() + timeout_s
        for folder in self.folders:
            while folder.exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                if time.monotonic() > deadline:
                    break
                time.sleep(0.005)
        return not any(folder.exists() for folder in self.folders)


def make(name: str, memory_bytes: int, processes: int) -> Cgroup | None:
    """Create the group ``lemur-sandbox-NAME`` with a limit of ``memory_bytes`` (swap included) and ``processes``.
    Returns None if this process may not create groups. Processes in an old group of that name are killed first."""
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
    """Whether ``make`` can create groups here, and so limit the summed memory of a sandbox. Probed once per process."""
    return bool(_parents())


def of_process(pid: int) -> Cgroup | None:
    """The control group of process ``pid``, for reading its ``oom_kills``; None if the process or its group is not
    visible here. For groups that another program (Docker) created."""
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
    """Folders in which groups can be created; probed once."""
    with _trying:  # two threads at once would collide on the name of the probe group
        return _tried()


@cache
def _tried() -> tuple[Path, ...]:
    both = (MOUNT / "memory", MOUNT / "pids")
    for parents in (both, (MOUNT,)):
        if all(_works(parent) for parent in parents):
            return (*parents, MOUNT / "cpu") if parents == both and _works(MOUNT / "cpu") else parents
    return ()


def _works(parent: Path) -> bool:
    """Whether a child group of ``parent`` can be created, limited and joined."""
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
