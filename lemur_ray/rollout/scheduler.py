"""The orders of a run: all of them, and which comes next.

An order is made when its turn comes. What is kept is a place in the plan, and of orders that wait for others which
these are: of a run of a hundred thousand episodes there are as many orders in memory as are played. Knows nothing of
attempts, pools or clocks.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import overload

from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import EpisodeKey, Task
from lemur_ray.rollout.attempt import EpisodeLimits, Order


class Orders(Sequence[Order]):
    """Every episode of a run, epoch by epoch, each made whenever it is asked for."""

    def __init__(
        self,
        tasks: Iterable[Task],
        *,
        epochs: int,
        policy: str,
        recipe: str,
        sampling: Sampling,
        limits: EpisodeLimits,
    ) -> None:
        """Raises ValueError on two tasks with one id."""
        self._tasks = tuple(tasks)
        self._epochs, self._policy, self._recipe = epochs, policy, recipe
        self._sampling, self._limits = sampling, limits
        if twice := sorted(name for name, count in Counter(task.id for task in self._tasks).items() if count > 1):
            raise ValueError(f"{len(twice)} task ids occur twice, for example {twice[0]!r}")

    def __len__(self) -> int:
        return len(self._tasks) * self._epochs

    @overload
    def __getitem__(self, place: int) -> Order: ...

    @overload
    def __getitem__(self, place: slice) -> list[Order]: ...

    def __getitem__(self, place: int | slice) -> Order | list[Order]:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        epoch, number = divmod(range(len(self))[place], len(self._tasks))
        task = self._tasks[number]
        key = EpisodeKey(task.benchmark, task.id, self._policy, self._recipe, epoch)
        return Order(key, task, self._sampling, self._limits)


class EpisodeScheduler:
    """Hands out the orders that are not settled, each once, and those that were put back.

    First those put back, then the first whose task waits for none that is open (``Task.after``), nor, where epochs have
    lanes (``Task.lanes``), for the one before it in its lane.
    """

    def __init__(self, orders: Sequence[Order], settled: Callable[[EpisodeKey], bool]) -> None:
        self._orders, self._settled = orders, settled
        self._place = 0
        """Of the first order that was not looked at yet."""
        self._back: deque[Order] = deque()
        self._ready: list[int] = []
        """Places that waited and wait no longer, a heap."""
        self._waits_for: dict[int, set[EpisodeKey]] = {}
        self._who_waits: dict[EpisodeKey, list[int]] = {}
        awaited = {name for order in orders for name in order.task.after}
        self._open: set[EpisodeKey] = set()
        """Of the keys that anybody may wait for, those that have not ended."""
        self._in_lanes: dict[int, set[EpisodeKey]] = {}
        """Likewise, of tasks whose epochs have lanes, by epoch."""
        self._new = 0
        for order in orders:
            if not settled(order.key):
                self._new += 1
                if order.task.id in awaited:
                    self._open.add(order.key)
                if order.task.lanes:
                    self._in_lanes.setdefault(order.key.epoch, set()).add(order.key)

    def __len__(self) -> int:
        """Orders that are still to be handed out."""
        return self._new + len(self._back)

    def put_back(self, order: Order) -> None:
        """It comes next."""
        self._back.appendleft(order)

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

    def next(self, *, idle: bool) -> Order | None:
        """The next one, None where all that are left have to wait; where nothing else goes on, the first of these."""
        if self._back:
            return self._back.popleft()
        if self._ready:
            return self._begun(heapq.heappop(self._ready))
        while self._place < len(self._orders):
            place, order = self._place, self._orders[self._place]
            self._place += 1
            if self._settled(order.key):
                continue
            waits_for = {key for task in order.task.after if (key := replace(order.key, task=task)) in self._open}
            if not waits_for and order.task.lanes:  # others of its epoch begin after it
                waits_for = set(self._in_lanes.get(order.key.epoch - order.task.lanes, ()))
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

    def _begun(self, place: int) -> Order:
        self._new -= 1
        return self._orders[place]
