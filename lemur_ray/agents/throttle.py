"""How many requests one process has at an endpoint at once: fewer while the endpoint refuses, more again as it answers.

Every refusal (429, 503, a full queue) of a request that was sent after the last cut takes the limit down to ``CUT`` of
what was there; every answer takes it up: by one below what the endpoint is known to bear, by one per round above that.
Requests that must wait do so in order of arrival, those that were refused before the others. Waiting here is nobody's
fault: a policy's patience does not run meanwhile, unless the endpoint has stopped answering anybody.

Shared by all episodes of a process, or in an actor by those of a cluster. Knows nothing of HTTP, of Ray or of episodes.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

CUT = 0.7
LOOK_S = 1.0
"""How often a request that waits looks whether waiting still makes sense."""

Verdict = Literal["answered", "refused", "failed"]


@dataclass(frozen=True)
class Pressure:
    """How an endpoint holds a process (or several, added up) back. ``limit`` 0: not at all."""

    limit: int = 0
    """Requests that may be there at once."""
    waiting: int = 0
    """Requests that wait for a place."""
    refused: int = 0
    """Requests that the endpoint refused since the beginning."""

    def __add__(self, other: Pressure) -> Pressure:
        return Pressure(self.limit + other.limit, self.waiting + other.waiting, self.refused + other.refused)


@dataclass(frozen=True)
class Silence:
    """``seconds`` since anybody was answered, or since the first request was sent. ``ever``: whether anybody was.
    ``under_way``: requests that may still be answered."""

    seconds: float
    ever: bool
    under_way: int = 0


class EndpointSilent(Exception):
    """The endpoint answered no request at all for as long as one request may wait."""


class SlotEvent(Protocol):
    """What a request waits on: an event of threads or of asyncio."""

    def set(self) -> None: ...

    def is_set(self) -> bool: ...


class Throttle:
    """Call ``enter`` before a request and ``leave`` after it. ``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[SlotEvent] = deque()
        self._there = 0
        self._limit = self._ceiling = math.inf
        self._cut_at = self._answered_at = self._first_at = -math.inf
        self._answers = self._refused = 0

    def enter(self, patience_s: float, *, again: bool) -> float:
        """Wait for a place; returns the seconds waited. ``again``: the request was refused before, it goes first.

        Raises NobodyAnswered after ``patience_s`` seconds in which nobody was answered.
        """
        began = self._clock()
        place = threading.Event()
        self.queue(place, again=again)
        while not place.wait(LOOK_S):
            self.look(place, began, patience_s)
        return self._clock() - began

    def queue(self, place: SlotEvent, *, again: bool) -> None:
        """Set ``place`` as soon as there is one."""
        with self._lock:
            if self._first_at == -math.inf:
                self._first_at = self._clock()
            self._waiting.appendleft(place) if again else self._waiting.append(place)
            self._let_in()

    def look(self, place: SlotEvent, began: float, patience_s: float) -> None:
        """Raises NobodyAnswered, and forgets the place, where waiting for it no longer makes sense."""
        with self._lock:
            silent = self._clock() - max(began, self._answered_at)
            if silent >= patience_s and not place.is_set():
                self._waiting.remove(place)
                raise EndpointSilent(f"no request was answered for {silent:.0f} s")

    def forget(self, place: SlotEvent) -> None:
        """Whoever waited for the place is gone."""
        with self._lock:
            if not place.is_set() and place in self._waiting:
                self._waiting.remove(place)

    def silence(self) -> Silence:
        """For how long nobody has been answered."""
        with self._lock:
            ever, since = self._answered_at > -math.inf, max(self._answered_at, self._first_at)
            return Silence(self._clock() - since if since > -math.inf else 0.0, ever, self._there)

    def leave(self, verdict: Verdict, entered_at: float) -> None:
        """Give the place back. ``entered_at``: when the request was sent, on the same clock."""
        with self._lock:
            self._there -= 1
            if verdict == "answered":
                self._grow()
            elif verdict == "refused":
                self._shrink(entered_at)
            self._let_in()

    def pressure(self) -> Pressure:
        """How things stand. Any thread may ask."""
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
            self._limit = self._ceiling = math.inf  # it bears again what it once refused, and nobody asks for more

    def _shrink(self, entered_at: float) -> None:
        self._refused += 1
        if entered_at < self._cut_at:
            return  # sent before the last cut: it says nothing of the limit since then
        there = min(self._limit, self._there + 1)
        if self._answers:  # else the endpoint refuses everybody: that says nothing of how much it bears
            self._ceiling = there
        self._limit, self._cut_at, self._answers = max(1.0, CUT * there), self._clock(), 0

    def _let_in(self) -> None:
        while self._waiting and self._there < max(1, int(min(self._limit, 1e9))):
            self._there += 1
            self._waiting.popleft().set()
