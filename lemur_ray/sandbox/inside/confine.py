"""Confines a child of the first process before it runs the policy's code: descriptors, limits, capabilities, filter."""

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lemur_ray.sandbox.inside import kernel, syscall_filter

OPEN_FILES = 1024
NOT_FOUND, NOT_RUNNABLE, BROKEN = 127, 126, 125


@dataclass(frozen=True)
class Confinement:
    """Limits of every program in a sandbox: number of processes, bytes of memory and of a file, system calls."""

    processes: int
    memory_bytes: int
    disk_bytes: int
    count_all_memory: bool
    """Refuse calls that allocate memory outside of processes, because no cgroup limits the sum."""
    tracing: bool = False
    """Allow programs to trace one another."""


def limits_of(c: Confinement) -> list[tuple[int, int]]:
    """The resource limits of a confined program as (``resource.RLIMIT_...``, value) pairs for ``setrlimit``."""
    return [
        (resource.RLIMIT_NPROC, c.processes),
        (resource.RLIMIT_DATA, c.memory_bytes),
        (resource.RLIMIT_FSIZE, c.disk_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_MEMLOCK, 65536),
        (resource.RLIMIT_MSGQUEUE, 65536),
        (resource.RLIMIT_SIGPENDING, 1024),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
    ]


def fork_into(confinement: Confinement, descriptors: Mapping[int, int], action: Callable[[], int]) -> int:
    """Fork a process, confine it (own session, no capabilities, limits, system call filter), run ``action`` in it and
    exit with its return value; 125 if it raises. Returns the child's pid at once. ``descriptors``: number in the child
    -> open descriptor here; all others are closed in the child."""
    pid = os.fork()
    if pid:
        return pid
    status = BROKEN
    try:
        _enter(confinement, descriptors)
        status = action()
    except BaseException as error:  # a fork of the first process must never return into its loop
        with contextlib.suppress(OSError):
            os.write(2, f"sandbox: {error}\n".encode())
    finally:
        os._exit(status)


def _enter(c: Confinement, descriptors: Mapping[int, int]) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    # /proc/self of a process that may not be looked into belongs to the superuser, even for itself.
    kernel.prctl(kernel.SET_DUMPABLE, 1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("900")  # out of memory, the kernel kills programs of the policy before the first process
    kernel.prctl(kernel.SET_DUMPABLE, 0)
    high = {at: os.dup2(fd, 200 + at, inheritable=True) for at, fd in descriptors.items()}
    for at, fd in high.items():
        os.dup2(fd, at, inheritable=True)
    kept = sorted(descriptors)
    for low, above in zip([-1, *kept], [*kept, OPEN_FILES * 4], strict=True):
        if low + 1 < above:  # an empty range that begins at 0 would close everything
            os.closerange(low + 1, above)
    os.chdir("/")
    os.umask(0o022)
    kernel.keep_capabilities(())
    for which, value in limits_of(c):
        hard = resource.getrlimit(which)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (bound, bound))
    syscall_filter.install(c.count_all_memory, c.tracing)


def program(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> Callable[[], int]:
    """An action for ``fork_into`` that changes to folder ``cwd`` and executes ``argv`` with exactly the environment
    ``env``. On failure it writes why to stderr and returns 127 (not found), 126 (not executable) or 125 (no folder)."""

    def action() -> int:
        try:
            os.chdir(cwd)
        except OSError as error:
            sys.stderr.write(f"sandbox: cannot enter {cwd}: {error.strerror}\n")
            return BROKEN
        try:
            os.execvpe(argv[0], list(argv), dict(env))
        except FileNotFoundError:
            sys.stderr.write(f"sandbox: {argv[0]}: command not found\n")
            return NOT_FOUND
        except (OSError, ValueError) as error:
            sys.stderr.write(f"sandbox: {argv[0]}: {error}\n")
            return NOT_RUNNABLE

    return action
