"""Calls with deadlines: run a function in a companion thread and stop waiting for it at the deadline.

A Python thread cannot be killed. A call that misses its deadline is therefore *abandoned*: its thread is a daemon that
does not delay the end of the process, its result is discarded, and it is counted, so that the pool can replace a
process with too many of them."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from lemur_ray.agents.external_calls import CallMeter, use_meter
from lemur_ray.sandbox.exec_slots import lost_s

T = TypeVar("T")


_Request = tuple[Callable[[], Any], CallMeter, "queue.SimpleQueue[Any]"]
LOOK_S = 0.5
"""Seconds between two checks of the time that a call has spent in external calls."""
OUTSIDE_S = 86_400.0
"""Maximum seconds of external calls within one call: only a guard, because each external service has a timeout."""


class DeadlineExceeded(Exception):
    """Raised if a call does not return in time; the call may still be running in its thread."""


class Call(Protocol):
    """Interface of a function that makes a call which may hang."""

    def __call__(self, function: Callable[[], T], timeout_s: float, what: str, meter: CallMeter | None = None) -> T:
        """Return the result of ``function``, or raise its exception. Raises DeadlineExceeded after ``timeout_s``
        seconds, not counting those that ``meter`` measures in external calls. ``what``: the call's name in errors."""


def call_directly(function: Callable[[], T], timeout_s: float, what: str, meter: CallMeter | None = None) -> T:
    """Return ``function()``, called in this thread without a deadline: for tests and trusted environments.
    ``timeout_s`` and ``what`` are ignored; ``meter`` measures its external calls."""
    with use_meter(meter or CallMeter()):
        return function()


class CompanionThread:
    """A ``Call`` that runs the calls of one episode in a daemon thread. A call that misses its deadline is abandoned
    with its thread, counted in ``abandoned``, and the next gets a new one. ``name``: prefix of thread names."""

    def __init__(self, name: str) -> None:
        self.abandoned = 0
        self._name = name
        self._inbox: queue.SimpleQueue[_Request | None] | None = None
        self._thread: threading.Thread | None = None

    def __call__(self, function: Callable[[], T], timeout_s: float, what: str, meter: CallMeter | None = None) -> T:
        meter = meter or CallMeter()
        if self._inbox is None:
            self._inbox = queue.SimpleQueue()
            self._thread = threading.Thread(target=_serve, args=(self._inbox,), name=f"{self._name}-calls", daemon=True)
            self._thread.start()
        assert self._thread is not None
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._inbox.put((function, meter, answer))
        try:
            value, error = _wait_for(answer, timeout_s, meter, self._thread.ident or 0)
        except queue.Empty:
            self._inbox.put(None)  # if the call ever returns, its thread ends
            self._inbox, self.abandoned = None, self.abandoned + 1
            raise DeadlineExceeded(f"{what} did not return within {timeout_s:g} s") from None
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """End the thread if it is idle; abandoned ones continue. Safe to call twice."""
        if self._inbox is not None:
            self._inbox.put(None)
            self._inbox = None


def _wait_for(answer: queue.SimpleQueue[Any], timeout_s: float, meter: CallMeter, thread: int) -> Any:
    """Wait for ``answer``. Raises queue.Empty after ``timeout_s`` seconds, not counting those that ``thread`` spent in
    external calls or waiting for a sandbox slot."""
    began, lost_before = time.monotonic(), lost_s(thread)
    while True:
        outside_s = meter.seconds + lost_s(thread) - lost_before
        left_s = timeout_s - (time.monotonic() - began - outside_s)
        if left_s <= 0 or outside_s > OUTSIDE_S:
            raise queue.Empty
        try:
            return answer.get(timeout=min(left_s, LOOK_S))
        except queue.Empty:
            continue


def _serve(inbox: queue.SimpleQueue[_Request | None]) -> None:
    while (item := inbox.get()) is not None:
        function, meter, answer = item
        try:
            with use_meter(meter):
                value = function()
            answer.put((value, None))
            del value
        except BaseException as error:  # raised again in the caller's thread
            answer.put((None, error))
        del function, meter, answer, item  # so that an idle companion keeps no environment alive
