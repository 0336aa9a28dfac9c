"""Adaptive limit of concurrent requests to an endpoint: lower after refusals, higher after answers.

A refusal (429, 503, a full queue) of a request sent after the last cut reduces the limit to ``CUT`` of the requests in
flight. Each answer raises the limit: by 1 below ``CUT`` of the limit at which refusals began, else by 1/limit. Waiting
requests are served in order of arrival, repeated ones first. The wait does not count against a policy's patience,
unless the endpoint has stopped answering altogether.

One limit is shared by all episodes of a process, or in an actor by those of a cluster."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

CUT = 0.7
LOOK_S = 1.0
"""Seconds between checks of a waiting request that the endpoint still answers"""

Verdict = Literal["answered", "refused", "failed"]


@dataclass(frozen=True)
class Pressure:
    """State of the concurrency limit of one process, or sums over several. ``limit`` 0: unlimited."""

    limit: int = 0
    """Maximum concurrent requests"""
    waiting: int = 0
    """Requests that wait for a slot"""
    refused: int = 0
    """Requests refused so far"""

    def __add__(self, other: "Pressure") -> "Pressure":
        return Pressure(self.limit + other.limit, self.waiting + other.waiting, self.refused + other.refused)


@dataclass(frozen=True)
class Silence:
    """Time without an answer. ``seconds``: since the last answer, or without any since the first request. ``ever``:
    whether any request was answered. ``under_way``: number of requests in flight."""

    seconds: float
    ever: bool
    under_way: int = 0


class EndpointSilent(Exception):
    """Raised to a waiting request if no request was answered for its patience; the message has the seconds."""


class SlotEvent(Protocol):
    """Event (of threading or asyncio) that is set when a waiting request gets its slot."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...


class Throttle:
    """Limit of concurrent requests: ``enter`` before a request, ``leave`` after it. ``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[SlotEvent] = deque()
        self._there = 0
        self._limit = self._ceiling = math.inf
        self._cut_at = self._answered_at = self._first_at = -math.inf
        self._answers = self._refused = 0

    def enter(self, patience_s: float, *, again: bool) -> float:
        """Wait for a slot; returns the seconds waited. ``again``: the request is a repeated one, which goes first.
        Raises EndpointSilent after ``patience_s`` seconds without an answer to any request."""
        began = self._clock()
        place = threading.Event()
        self.queue(place, again=again)
        while not place.wait(LOOK_S):
            self.look(place, began, patience_s)
        return self._clock() - began

    def queue(self, place: SlotEvent, *, again: bool) -> None:
        """Queue a request, first if it is repeated (``again``); ``place`` is set once it has a slot."""
        with self._lock:
            if self._first_at == -math.inf:
                self._first_at = self._clock()
            self._waiting.appendleft(place) if again else self._waiting.append(place)
            self._let_in()

    def look(self, place: SlotEvent, began: float, patience_s: float) -> None:
        """If no request was answered for ``patience_s`` seconds, and this one has waited as long (``began``: monotonic
        seconds), remove it from the queue and raise EndpointSilent."""
        with self._lock:
            silent = self._clock() - max(began, self._answered_at)
            if silent >= patience_s and not place.is_set():
                self._waiting.remove(place)
                raise EndpointSilent(f"no request was answered for {silent:.0f} s")

    def forget(self, place: SlotEvent) -> None:
        """Remove the waiting request with this ``place`` from the queue, if it is there, because its sender is gone."""
        with self._lock:
            if not place.is_set() and place in self._waiting:
                self._waiting.remove(place)

    def silence(self) -> Silence:
        """How long no request was answered, whether any ever was, and the number of requests in flight."""
        with self._lock:
            ever, since = self._answered_at > -math.inf, max(self._answered_at, self._first_at)
            return Silence(self._clock() - since if since > -math.inf else 0.0, ever, self._there)

    def leave(self, verdict: Verdict, entered_at: float) -> None:
        """Release a slot. ``verdict``: how the request ended; ``entered_at``: when it was sent, by ``clock``."""
        with self._lock:
            self._there -= 1
            if verdict == "answered":
                self._grow()
            elif verdict == "refused":
                self._shrink(entered_at)
            self._let_in()

    def pressure(self) -> Pressure:
        """Limit of concurrent requests, number of waiting ones, and number of refusals so far."""
        with self._lock:
            limit = 0 if self._limit == math.inf else int(self._limit)
            return Pressure(limit, len(self._waiting), self._refused)

    def _grow(self) -> None:
        self._answered_at = self._clock()
        self._answers += 1
        if self._limit == math.inf:
            return
        self._limit += 1.0 if self._limit < CUT * self._ceiling else 1.0 / self._limit
        if self._limit >= self._ceiling and not self._waiting:
            self._limit = self._ceiling = math.inf  # the endpoint has recovered, and no request waits

    def _shrink(self, entered_at: float) -> None:
        self._refused += 1
        if entered_at < self._cut_at:
            return  # sent before the last cut: it says nothing of the limit since then
        there = min(self._limit, self._there + 1)
        if self._answers:  # else the endpoint refuses every request, which says nothing about its capacity
            self._ceiling = there
        self._limit, self._cut_at, self._answers = max(1.0, CUT * there), self._clock(), 0

    def _let_in(self) -> None:
        while self._waiting and self._there < max(1, int(min(self._limit, 1e9))):
            self._there += 1
            self._waiting.popleft().set()
