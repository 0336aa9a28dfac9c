"""Limits the sandbox steps that run at once in this process, and accounts for the time that threads lose by waiting.

Steps wait for a slot, because dozens of busy episodes on a few processors would all be starved. This wait, and the time
that a starved step lasts beyond its limit (``Limits.patience_s``), count against no deadline of the waiting thread."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

AT_ONCE = max(4, 3 * len(os.sched_getaffinity(0)))
"""Maximum concurrent steps; more than processors, since most steps also wait for other things."""


@dataclass
class _Account:
    """Lost time of a thread. ``began``: monotonic time from which on it is losing time, None if it is not."""

    lost_s: float = 0.0
    began: float | None = None


_accounts: dict[int, _Account] = {}
_free = threading.BoundedSemaphore(AT_ONCE)


@contextmanager
def hold_slot(limit_s: float) -> Iterator[None]:
    """Context manager that holds one of ``AT_ONCE`` slots of this process for a step, after waiting for one without
    limit. The wait, and time in the block beyond ``limit_s`` seconds, are added to this thread's lost time."""
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


def add_lost_time(seconds: float) -> None:
    """Add ``seconds`` to the lost time of the calling thread (see ``lost_s``)."""
    _accounts.setdefault(threading.get_ident(), _Account()).lost_s += seconds


def lost_s(thread: int) -> float:
    """Seconds that a thread (``threading.get_ident()``) has lost so far by waiting for slots and processors; 0 for an
    unknown one. Deadlines of episodes are extended by it."""
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
