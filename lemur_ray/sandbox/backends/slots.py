"""Numbered slots for the sandboxes of one machine: each has a uid, and a record for cleaning up after dead runs.

A slot is a locked file. The kernel releases the lock with its process, so a slot that can be locked and holds a record
belonged to a run that died: everything that the record names is destroyed before the slot is used again."""

import contextlib
import json
import os
import signal
import stat
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lemur_ray.host import file_lock
from lemur_ray.sandbox.backends.cgroup import Cgroup

SLOTS = 4096
FIRST_UID = 2_100_000
"""First uid of sandboxes, above the ranges that distributions assign to users, services and containers."""

_releasing = threading.Lock()


@dataclass
class Slot:
    """One of the numbered slots for sandboxes, held by this process until ``release``. ``path``: its lock file, which
    also stores the record of what to clean up; ``uid``: the user id of its sandbox."""

    number: int
    path: Path
    _file: int

    @property
    def uid(self) -> int:
        return FIRST_UID + self.number

    def record(self, **what: Any) -> None:
        """Replace the slot's record, stored as JSON, of what another process destroys if this one dies: ``process``
        (pid and start time of the sandbox's process), ``cgroups`` (names), ``run`` (label of the run)."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(what).encode(), 0)

    def abandon(self) -> None:
        """For a forked child: close its copy of the slot's file, so that only the parent holds the slot."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def release(self, left: bool = False) -> None:
        """Give the slot back; idempotent, from any thread. ``left``: parts of the sandbox still exist, so the record
        stays for the next clean-up."""
        with _releasing:
            file, self._file = self._file, -1
        if file >= 0:
            if not left:
                os.ftruncate(file, 0)
            os.close(file)


def folder() -> Path:
    """Folder with this user's slots, created with mode 0700 if absent. Raises PermissionError if it is another's."""
    base = Path("/run") if os.geteuid() == 0 else Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    path = base / f"lemur-sandboxes-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise PermissionError(f"{path} is not a private folder of this user: remove it")
    return path


def take() -> Slot:
    """Take the slot with the lowest free number. Processes and groups that a dead run left in it are destroyed first;
    if that fails, the next slot is tried. Raises RuntimeError if all slots are taken."""
    where = folder()
    for number in range(SLOTS):
        slot = _lock(where / str(number), number)
        if slot:
            _, left = _destroy(slot)
            if not left:
                return slot
            slot.release(left)
    raise RuntimeError(
        f"all {SLOTS} sandbox slots in {where} are taken: close sandboxes, or end the processes that hold them"
    )


def reap() -> list[dict[str, Any]]:
    """Kill the processes and remove the control groups of sandboxes whose owning process has died. Returns the records
    (``Slot.record``) of what was destroyed; empty if there was nothing."""
    where = folder()
    records = []
    for path in sorted(where.iterdir()):
        if path.name.isdigit() and path.stat().st_size and (slot := _lock(path, int(path.name))):
            record, left = _destroy(slot)
            slot.release(left)
            if record:
                records.append(record)
    return records


@cache
def reap_once() -> None:
    """Destroy the remains of dead runs' sandboxes, unless this process has done so before."""
    reap()


def _lock(path: Path, number: int) -> Slot | None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not file_lock.take(file):
        os.close(file)
        return None
    return Slot(number, path, file)


def _destroy(slot: Slot) -> tuple[dict[str, Any], bool]:
    """Destroy everything in the slot's record; returns the record and whether something remains."""
    text = os.pread(slot._file, 2**16, 0)
    try:
        record = json.loads(text) if text else {}
    except ValueError:  # torn by the death of its writer, before anything was started
        record = {}
    left = False
    if process := record.get("process"):
        end_process(*process)
        left = is_running(*process)
    if groups := record.get("cgroups"):
        left |= not Cgroup(tuple(Path(group) for group in groups)).clear()
    if not left:
        os.ftruncate(slot._file, 0)
    return record, left


def start_time(pid: int) -> int | None:
    """Start time of process ``pid`` in clock ticks since boot; unique with the pid; None without the process."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def is_running(pid: int, start: int) -> bool:
    """Whether the process ``pid`` that started at ``start`` (clock ticks since boot) still exists and is no zombie."""
    fields = _stat(pid)
    return bool(fields) and int(fields[19]) == start and fields[0] != b"Z"


def _stat(pid: int) -> list[bytes]:
    """Fields of /proc/PID/stat from the state on; empty for a missing process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def end_process(pid: int, start: int, timeout_s: float = 5.0) -> None:
    """Kill the process ``pid`` and its children if it is still the one that started at ``start`` (clock ticks since
    boot), and wait up to ``timeout_s`` seconds for its end. If it is gone, a bubblewrap that it left in its session is
    killed: one that was killed during its start may leave a child that waits for ever."""
    there = start_time(pid)
    ended = [*(int(word) for word in children(pid)), pid] if there == start else []
    if there is None:
        ended = [number for number, name in session(pid) if name == b"bwrap"]
    for number in ended:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    deadline = time.monotonic() + timeout_s
    while is_running(pid, start) and time.monotonic() < deadline:
        time.sleep(0.005)


def session(leader: int) -> list[tuple[int, bytes]]:
    """(pid, command name) of all processes in the POSIX session that process ``leader`` created; maybe none."""
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))) and int(fields[3]) == leader:
            with contextlib.suppress(OSError):
                members.append((int(entry), Path(f"/proc/{entry}/comm").read_bytes().strip()))
    return members


def children(pid: int) -> list[bytes]:
    """Process ids, as decimal bytes, of a process's children; empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()
    except OSError:
        return []
