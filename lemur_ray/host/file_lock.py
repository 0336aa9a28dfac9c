"""One process at a time on this machine holds a file: the kernel's lock, which ends with its process, however it ends.

The holder's number stands in a lock file, so that whoever finds it held can say by whom. Knows nothing of what the file
stands for; a lock between machines or in a bucket is another thing (``train.run.lease``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_S = 0.2
"""Seconds between two looks at a lock that is waited for with a limit; without one the kernel wakes the waiter."""


class FileHeld(Exception):
    """Another process holds the file. The caller says what that means and what to do."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is held by process {holder}: wait for it, or end it")
        self.path = path
        self.holder = holder
        """Process number as written by the holder, "?" where it wrote none."""


def take(descriptor: int, *, wait_s: float | None = 0.0) -> bool:
    """Whether the lock of an open file or folder could be had within so many seconds (None: for ever).

    It is held until every copy of the descriptor is closed, so by this process alone as long as it is not inherited.
    """
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
    """Hold a lock file, made where it is not there; it stays behind, empty of meaning once nobody holds it.

    waiting: called once where another holds it and it is waited for. Raises FileHeld after ``wait_s`` seconds.
    """
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
