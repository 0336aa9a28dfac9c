"""Lists, kills and measures the processes of a sandbox, for its first process.

``proc`` is the path of a /proc of the sandbox's process namespace; process 1 there is the caller and is left alone."""

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
    """State of a process, as read from /proc/PID/stat."""

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
    """All processes below ``proc`` (path of a /proc) except process 1; with ``dead`` zombies too."""
    processes = []
    for name in os.listdir(proc):
        if not name.isdigit() or name == "1":
            continue
        fields = _read(f"{proc}/{name}/stat").rpartition(b")")[2].split()
        if not fields or (fields[0] in (b"Z", b"X") and not dead):
            continue
        cpu = sum(int(field) for field in fields[11:15]) / TICKS
        processes.append(Process(int(name), int(fields[3]), cpu, int(fields[19]), fields[0] == b"R"))
    return processes


def _read(path: str) -> bytes:
    """Content of a file about a process; empty if the process is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path, "rb") as file:
        return file.read()
    return b""


def used_s(proc: str) -> float:
    """CPU seconds of all processes below ``proc`` but process 1, with zombies and children they have waited for."""
    return sum(process.cpu_s for process in listed(proc, dead=True))


def send(pid: int, number: int) -> None:
    """Send signal ``number`` to process ``pid`` if it exists; pid -1: to all of this pid namespace but its first."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


Ended = dict[int, tuple[int, float]]
"""Collected children: pid -> (wait status, CPU seconds with those of the children it waited for)."""


def kill_except(
    proc: str, spared: set[tuple[int, int]], collected: Callable[[Ended], None], timeout_s: float = 3.0
) -> bool:
    """Kill all processes below ``proc`` except process 1 and those whose ``name`` (pid, start) is in ``spared``. Each
    is stopped before it is killed; if some outrun that for 20 rounds by forking, the spared ones are killed too.
    ``collected`` receives the reaped children. Returns False then, or if some outlive ``timeout_s``."""
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
    """Reap ended children without waiting; returns how each ended (pid -> wait status, CPU seconds)."""
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
    """Bytes that a socket may hold in its two buffers, by the kernel's defaults for the namespace of ``proc`` (the
    system call filter allows no larger ones)."""
    total = 0
    for name in ("wmem_default", "rmem_default"):
        try:
            with open(f"{proc}/sys/net/core/{name}", "rb") as file:
                total += int(file.read())
        except (OSError, ValueError):  # not shown in every namespace
            total += _DEFAULT_BYTES
    return total


def sockets(proc: str) -> int:
    """Number of sockets in the network of ``proc``, with those in flight that no process holds; 0 if unreadable."""
    try:
        with open(f"{proc}/self/net/sockstat", "rb") as file:
            return int(file.readline().split()[2])  # sockets: used N
    except (OSError, ValueError, IndexError):
        return 0


def heaviest(proc: str, limit_bytes: int, own_network: bool = True) -> int | None:
    """The pid of the largest process if all but the first use more than ``limit_bytes`` together, else None. Resident
    sizes count shared pages once per process; only if their sum exceeds the limit are the proportional shares read,
    which is slower. Socket buffers belong to no process: beyond FREE_SOCKETS (128) each socket counts as full, and if
    they alone exceed the limit, the process with most sockets is returned. ``own_network``: False for a network shared
    with the host, where only sockets held by these processes count."""
    if not own_network or sockets(proc) > FREE_SOCKETS:
        held = {process.pid: _sockets_of(proc, process.pid) for process in listed(proc)}
        number = sockets(proc) if own_network else sum(held.values())
        if (number - FREE_SOCKETS) * socket_bytes(proc) > limit_bytes:
            return max(held, key=lambda pid: held[pid], default=None)
    sizes = {}
    for process in listed(proc):
        if fields := _read(f"{proc}/{process.pid}/statm").split():
            sizes[process.pid] = int(fields[1]) * PAGE
    if sum(sizes.values()) <= limit_bytes:
        return None
    shares = {pid: _share(proc, pid) for pid in sizes}
    if sum(shares.values()) <= limit_bytes:
        return None
    return max(shares, key=lambda pid: shares[pid])


def kill_heaviest(proc: str, limit_bytes: int, own_network: bool) -> bool:
    """Send SIGKILL to the process that ``heaviest`` returns, if any; ``limit_bytes``: of all but the first together;
    ``own_network``: False for a network shared with the host. Returns whether there was one."""
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
    lines = _read(f"{proc}/{pid}/smaps_rollup").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:")), 0)


def waited_s(proc: str, pid: int) -> float:
    """Seconds in which process ``pid`` was ready to run but had no processor: the maximum over its threads, since the
    first thread of a JVM only waits for the others. 0 if it is gone."""
    longest = 0
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"{proc}/{pid}/task"):
            with contextlib.suppress(IndexError):
                longest = max(longest, int(_read(f"{proc}/{pid}/task/{thread}/schedstat").split()[1]))
    return longest / 1e9


def own_waited_s() -> float:
    """Seconds in which this process's first thread was ready but had no processor; 0 if unknown."""
    with contextlib.suppress(OSError, IndexError), open("/proc/self/schedstat", "rb") as file:
        return int(file.read().split()[1]) / 1e9
    return 0.0
