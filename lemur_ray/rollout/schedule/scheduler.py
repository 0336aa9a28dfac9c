"""The orders of a run: all of them, and which comes next.

An order is made when its turn comes. What is kept is a place in the plan, and of orders that wait for others which
these are: of a run of a hundred thousand episodes there are as many orders in memory as are played. Knows nothing of
attempts, pools or clocks.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from lemur_ray.agents.trajectory import EpisodeKey
from lemur_ray.rollout.attempt import EpisodeSpec


class EpisodeScheduler:
    """Hands out the orders that are not settled, each once, and those that were put back.

    First those put back, then the first whose task waits for none that is open (``Task.after``), nor, where epochs have
    lanes (``Task.lanes``), for the one before it in its lane.
    """

    def __init__(self, plan: Sequence[EpisodeSpec], settled: Callable[[EpisodeKey], bool]) -> None:
        self._orders, self._settled = plan, settled
        self._place = 0
        """Of the first order that was not looked at yet."""
        self._back: deque[EpisodeSpec] = deque()
        self._ready: list[int] = []
        """Places that waited and wait no longer, a heap."""
        self._waits_for: dict[int, set[EpisodeKey]] = {}
        self._who_waits: dict[EpisodeKey, list[int]] = {}
        awaited = {name for spec in plan for name in spec.task.after}
        self._open: set[EpisodeKey] = set()
        """Of the keys that anybody may wait for, those that have not ended."""
        self._in_lanes: dict[int, set[EpisodeKey]] = {}
        """Likewise, of tasks whose epochs have lanes, by epoch."""
        self._new = 0
        for spec in plan:
            if not settled(spec.key):
                self._new += 1
                if spec.task.id in awaited:
                    self._open.add(spec.key)
                if spec.task.lanes:
                    self._in_lanes.setdefault(spec.key.epoch, set()).add(spec.key)

    def __len__(self) -> int:
        """Orders that are still to be handed out."""
        return self._new + len(self._back)

    def put_back(self, spec: EpisodeSpec) -> None:
        """It comes next."""
        self._back.appendleft(spec)

    def ended(self, key: EpisodeKey) -> None:
        """Nobody has to wait for it any more."""
        self._open.discard(key)
        self._in_lanes.get(key.epoch, set()).discard(key)
        for place in self._who_waits.pop(key, ()):
            waits_for = self._waits_for.get(place, set())
            waits_for.discard(key)
            if place in self._waits_for and not waits_for:
                del self._waits_for[place]
                heapq.heappush(self._ready, place)

    def next(self, *, idle: bool) -> EpisodeSpec | None:
        """The next one, None where all that are left have to wait; where nothing else goes on, the first of these."""
        if self._back:
            return self._back.popleft()
        if self._ready:
            return self._begun(heapq.heappop(self._ready))
        while self._place < len(self._orders):
            place, spec = self._place, self._orders[self._place]
            self._place += 1
            if self._settled(spec.key):
                continue
            waits_for = {key for task in spec.task.after if (key := replace(spec.key, task=task)) in self._open}
            if not waits_for and spec.task.lanes:  # others of its epoch begin after it
                waits_for = set(self._in_lanes.get(spec.key.epoch - spec.task.lanes, ()))
            if not waits_for:
                return self._begun(place)
            self._waits_for[place] = waits_for
            for key in waits_for:
                self._who_waits.setdefault(key, []).append(place)
        if idle and self._waits_for:
            first = min(self._waits_for)
            del self._waits_for[first]
            return self._begun(first)
        return None

    def _begun(self, place: int) -> EpisodeSpec:
        self._new -= 1
        return self._orders[place]
