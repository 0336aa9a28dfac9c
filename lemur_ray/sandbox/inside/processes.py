"""Lists, kills and measures the processes of a sandbox, for its first process.

``proc`` is the path of a /proc of the sandbox's process namespace; process 1 there is the caller and is left alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Process:
    """One line of /proc/PID/stat."""

    pid: int
    session: int
    """Process group session id (setsid)."""
    cpu_s: float
    """CPU seconds of the process and of the children that it has waited for."""
    started: int
    """Start time in clock ticks since boot; unique together with ``pid``."""
    is_ready: bool = False
    """Whether its first thread is running or ready to run."""

    @property
    def name(self) -> tuple[int, int]:
        return self.pid, self.started


def listed(proc: str, dead: bool = False) -> list[Process]:
    """All processes of the namespace but the first; ``dead``: including zombies."""
    processes = []
    for name in os.listdir(proc):
        if not name.isdigit() or name == "1":
            continue
        try:
            with open(f"{proc}/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] in (b"Z", b"X") and not dead:
            continue
        cpu = sum(int(field) for field in fields[11:15]) / TICKS
        processes.append(Process(int(name), int(fields[3]), cpu, int(fields[19]), fields[0] == b"R"))
    return processes


def used_s(proc: str) -> float:
    """CPU seconds that all existing processes have used, zombies included, and children that they have waited for."""
    return sum(process.cpu_s for process in listed(proc, dead=True))


def send(pid: int, number: int) -> None:
    """Send signal ``number`` to a process, which may be gone; pid -1: to all but the first."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


Ended = dict[int, tuple[int, float]]
"""Collected children: pid -> (wait status, CPU seconds with those of the children it waited for)."""


def kill_except(
    proc: str, spared: set[tuple[int, int]], collected: Callable[[Ended], None], timeout_s: float = 3.0
) -> bool:
    """Kill all processes whose ``name`` (pid, start) is not in ``spared``; ``collected`` receives the reaped children.
    Returns False if the spared ones were killed too, or some processes live after ``timeout_s`` seconds. Processes are
    stopped before they are killed; a crowd that forks faster than it can be listed is killed as a whole."""
    deadline = time.monotonic() + timeout_s
    rounds, all_spared = 0, True
    while True:
        doomed = [p for p in listed(proc) if p.name not in spared]
        if not doomed:
            collected(collect())
            return all_spared
        rounds += 1
        if spared and rounds > 20:
            spared, all_spared = set(), False
        if not spared:
            send(-1, signal.SIGKILL)
        else:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for process in doomed:
                    send(process.pid, number)
        collected(collect())
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001 if rounds < 5 else 0.01)


def collect() -> Ended:
    """Reap every dead child and return how each ended."""
    ended: Ended = {}
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status, usage.ru_utime + usage.ru_stime


FREE_SOCKETS = 128
"""Number of sockets whose buffers are not counted as memory."""
_DEFAULT_BYTES = 212_992


def socket_bytes(proc: str) -> int:
    """Maximum bytes in a socket's send and receive buffers (the system call filter allows no larger ones)."""
    total = 0
    for name in ("wmem_default", "rmem_default"):
        try:
            with open(f"{proc}/sys/net/core/{name}", "rb") as file:
                total += int(file.read())
        except (OSError, ValueError):  # not shown in every namespace
            total += _DEFAULT_BYTES
    return total


def sockets(proc: str) -> int:
    """Number of sockets in the sandbox's network, including those in flight that no process holds."""
    try:
        with open(f"{proc}/self/net/sockstat", "rb") as file:
            return int(file.readline().split()[2])  # sockets: used N
    except (OSError, ValueError, IndexError):
        return 0


def heaviest(proc: str, limit_bytes: int, own_network: bool = True) -> int | None:
    """The pid of the largest process if all together use more than ``limit_bytes``, else None.

    Resident sizes count shared pages once per process; only if their sum exceeds the limit are the proportional
    shares read, which is slower. Socket buffers belong to no process: beyond FREE_SOCKETS each socket counts as full,
    and the process with most sockets is returned; in a shared network only sockets held by these processes count.
    """
    if not own_network or sockets(proc) > FREE_SOCKETS:
        held = {process.pid: _sockets_of(proc, process.pid) for process in listed(proc)}
        number = sockets(proc) if own_network else sum(held.values())
        if (number - FREE_SOCKETS) * socket_bytes(proc) > limit_bytes:
            return max(held, key=lambda pid: held[pid], default=None)
    sizes = {}
    for process in listed(proc):
        try:
            with open(f"{proc}/{process.pid}/statm", "rb") as file:
                sizes[process.pid] = int(file.read().split()[1]) * PAGE
        except (FileNotFoundError, ProcessLookupError):
            continue
    if sum(sizes.values()) <= limit_bytes:
        return None
    shares = {pid: _share(proc, pid) for pid in sizes}
    if sum(shares.values()) <= limit_bytes:
        return None
    return max(shares, key=lambda pid: shares[pid])


def kill_heaviest(proc: str, limit_bytes: int, own_network: bool) -> bool:
    """Kill the ``heaviest`` process if all together exceed the limit. Returns whether one was killed."""
    if (pid := heaviest(proc, limit_bytes, own_network)) is not None:
        send(pid, signal.SIGKILL)
    return pid is not None


def _sockets_of(proc: str, pid: int) -> int:
    count = 0
    with contextlib.suppress(OSError):  # it is gone
        for name in os.listdir(f"{proc}/{pid}/fd"):
            with contextlib.suppress(OSError):
                count += os.readlink(f"{proc}/{pid}/fd/{name}").startswith("socket:")
    return count


def _share(proc: str, pid: int) -> int:
    """Proportional set size of a process in bytes: shared pages are divided among their users."""
    try:
        with open(f"{proc}/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def waited_s(proc: str, pid: int) -> float:
    """Seconds in which a process was ready but had no processor: the maximum over its threads, since the first thread
    of a JVM only waits for the others."""
    longest = 0
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"{proc}/{pid}/task"):
            with (
                contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError),
                open(f"{proc}/{pid}/task/{thread}/schedstat", "rb") as file,
            ):
                longest = max(longest, int(file.read().split()[1]))
    return longest / 1e9


def own_waited_s() -> float:
    """``waited_s`` of this process."""
    with contextlib.suppress(OSError, IndexError), open("/proc/self/schedstat", "rb") as file:
        return int(file.read().split()[1]) / 1e9
    return 0.0
