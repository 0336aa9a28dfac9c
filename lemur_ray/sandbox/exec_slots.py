"""Who may compute: a few steps of sandboxes at once in this process, and what of a caller's time was not its own.

Dozens of episodes that spin on a few processors would all be starved, and what a machine starves is nobody's fault: so
steps wait for their turn, and that time, like what a step lasts beyond its own limit because the machine gave it no
processor (``Limits.patience_s``), counts against no deadline of the thread that waited. Knows no sandbox.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

AT_ONCE = max(4, 3 * len(os.sched_getaffinity(0)))
"""Steps: most of them wait for something else than a processor, at least for a moment."""


@dataclass
class _Account:
    """Of a thread. ``began``: when its wait, or the part of its step that counts, is over and the rest is lost."""

    lost_s: float = 0.0
    began: float | None = None


_accounts: dict[int, _Account] = {}
_free = threading.BoundedSemaphore(AT_ONCE)


@contextmanager
def turn(limit_s: float) -> Iterator[None]:
    """Wait for a turn, and have it for a step that is to take at most ``limit_s`` seconds."""
    account = _accounts.setdefault(threading.get_ident(), _Account())
    with _losing(account, time.monotonic()):
        _free.acquire()
    try:
        with _losing(account, time.monotonic() + limit_s):
            yield
    finally:
        _free.release()


@contextmanager
def _losing(account: _Account, since: float) -> Iterator[None]:
    outer, account.began = account.began, since
    try:
        yield
    finally:
        account.lost_s += max(0.0, time.monotonic() - since)
        account.began = outer


def lose(seconds: float) -> None:
    """Count so many seconds more as lost by this thread."""
    _accounts.setdefault(threading.get_ident(), _Account()).lost_s += seconds


def lost_s(thread: int) -> float:
    """Seconds that a thread has lost so far to others and to a busy machine."""
    account = _accounts.get(thread)
    if account is None:
        return 0.0
    began = account.began
    return account.lost_s + (max(0.0, time.monotonic() - began) if began is not None else 0.0)


def _anew() -> None:
    global _free
    _free = threading.BoundedSemaphore(AT_ONCE)
    _accounts.clear()


os.register_at_fork(after_in_child=_anew)
