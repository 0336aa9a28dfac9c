"""Calls that must come back: run a function in a companion thread and stop waiting for it at a deadline.

A Python thread cannot be killed. A call that is over its deadline is therefore *abandoned*: its thread is a daemon
that never holds up the end of the process, its result is thrown away, and it is counted, so that the owner of the
process (the pool) can retire a process that has collected too many of them. Knows nothing of episodes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class DeadlineExceeded(Exception):
    """A call did not come back in time; it may still be running."""


class Call(Protocol):
    """How an episode makes a call that may hang."""

    def __call__(self, function: Callable[[], T], timeout_s: float, what: str) -> T:
        """Result of ``function``, or its exception. Raises DeadlineExceeded after ``timeout_s`` seconds."""
        ...


def call_directly(function: Callable[[], T], timeout_s: float, what: str) -> T:
    """The call without a deadline, in the caller's own thread: for tests and for environments that are trusted."""
    return function()


class CompanionThread:
    """One reusable daemon thread that makes the calls of one episode, and a new one whenever a call is abandoned."""

    def __init__(self, name: str) -> None:
        self.abandoned = 0
        self._name = name
        self._inbox: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]] | None] | None = None

    def __call__(self, function: Callable[[], T], timeout_s: float, what: str) -> T:
        if self._inbox is None:
            self._inbox = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(self._inbox,), name=f"{self._name}-calls", daemon=True).start()
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._inbox.put((function, answer))
        try:
            value, error = answer.get(timeout=timeout_s)
        except queue.Empty:
            self._inbox.put(None)  # should the call ever come back, its thread ends there
            self._inbox, self.abandoned = None, self.abandoned + 1
            raise DeadlineExceeded(f"{what} did not return within {timeout_s:g} s") from None
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """End the thread if it is idle. Safe to call twice."""
        if self._inbox is not None:
            self._inbox.put(None)
            self._inbox = None


def _serve(inbox: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]] | None]) -> None:
    while (item := inbox.get()) is not None:
        function, answer = item
        try:
            answer.put((function(), None))
        except BaseException as error:  # whatever it was, it belongs to the caller's thread, which raises it there
            answer.put((None, error))
        del function, answer, item  # an idle companion keeps no environment alive
