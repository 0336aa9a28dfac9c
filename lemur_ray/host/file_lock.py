"""File locks between processes of one machine; the kernel releases a lock when its process ends.

A lock file contains the holder's pid, for error messages. ``train.run.lease`` locks between machines and in buckets."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_S = 0.2
"""Seconds between two attempts to take a lock within a time limit; without a limit the kernel wakes the process."""


class FileHeld(Exception):
    """Raised if another process holds the lock; the message names the lock file and the pid of that process."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is held by process {holder}: wait for it, or end it")
        self.path = path
        self.holder = holder
        """Pid that the holder wrote into the file; "?" if the file is empty."""


def take(descriptor: int, *, wait_s: float | None = 0.0) -> bool:
    """Take the lock of an open file or folder (``descriptor``) within ``wait_s`` seconds (0: at once, None: wait for
    ever). Returns whether it succeeded. The lock lasts until every copy of the descriptor is closed."""
    if wait_s is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        time.sleep(POLL_S)


@contextlib.contextmanager
def hold(path: Path, *, wait_s: float | None = 0.0, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Context manager that holds the lock file ``path``, which is created if absent and not removed afterwards; its
    content is replaced by this process's id. ``waiting``: called once if another process holds it. Raises FileHeld
    after ``wait_s`` seconds (0: at once, None: never)."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not take(descriptor):
            if waiting is not None:
                waiting()
            if wait_s == 0.0 or not take(descriptor, wait_s=wait_s):
                raise FileHeld(path, os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "?")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
