"""Order of a run's episodes: returns the next one that need not wait for another.

Holds an index into the plan and the indices of episodes that wait for others, so memory grows with the episodes in
flight and not with the length of the run."""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from lemur_ray.agents.trajectory import EpisodeKey
from lemur_ray.rollout.attempt import EpisodeSpec


class EpisodeScheduler:
    """Returns each episode of a plan that has no score once, and again after ``put_back``. Those put back come first,
    then the first in the plan that need not wait. An episode waits for those of the tasks in ``Task.after`` in its
    epoch; with ``Task.lanes`` = n, also for all of epoch e - n. ``settled``: whether a key has a score already."""

    def __init__(self, plan: Sequence[EpisodeSpec], settled: Callable[[EpisodeKey], bool]) -> None:
        self._plan, self._settled = plan, settled
        self._index = 0
        """Index of the first episode in the plan that was not yet considered."""
        self._returned: deque[EpisodeSpec] = deque()
        self._ready: list[int] = []
        """Heap of the indices of episodes that waited and need not wait any longer."""
        self._waits_for: dict[int, set[EpisodeKey]] = {}
        self._waiting: dict[EpisodeKey, list[int]] = {}
        """Key of an episode that has not ended -> indices of the episodes that wait for it."""
        predecessors = {name for spec in plan for name in spec.task.after}
        self._open: set[EpisodeKey] = set()
        """Keys of episodes that have not ended, of tasks in another task's ``after``."""
        self._open_in_epoch: dict[int, set[EpisodeKey]] = {}
        """Epoch -> keys of episodes that have not ended, of tasks with ``lanes``."""
        self._new = 0
        for spec in plan:
            if not settled(spec.key):
                self._new += 1
                if spec.task.id in predecessors:
                    self._open.add(spec.key)
                if spec.task.lanes:
                    self._open_in_epoch.setdefault(spec.key.epoch, set()).add(spec.key)

    def __len__(self) -> int:
        """Number of episodes that ``next`` has yet to return."""
        return self._new + len(self._returned)

    def put_back(self, spec: EpisodeSpec) -> None:
        """Let ``next`` return this episode again, before all others."""
        self._returned.appendleft(spec)

    def ended(self, key: EpisodeKey) -> None:
        """Note that an episode has ended for good, so that no other waits for it any longer."""
        self._open.discard(key)
        self._open_in_epoch.get(key.epoch, set()).discard(key)
        for index in self._waiting.pop(key, ()):
            waits_for = self._waits_for.get(index, set())
            waits_for.discard(key)
            if index in self._waits_for and not waits_for:
                del self._waits_for[index]
                heapq.heappush(self._ready, index)

    def next(self, *, idle: bool) -> EpisodeSpec | None:
        """The next episode; None if all that are left wait for others. ``idle``: whether nothing is in flight or
        delayed; then the first waiting one is returned: its wait is circular."""
        if self._returned:
            return self._returned.popleft()
        if self._ready:
            return self._take(heapq.heappop(self._ready))
        while self._index < len(self._plan):
            index, spec = self._index, self._plan[self._index]
            self._index += 1
            if self._settled(spec.key):
                continue
            waits_for = {key for task in spec.task.after if (key := replace(spec.key, task=task)) in self._open}
            if not waits_for and spec.task.lanes:
                waits_for = set(self._open_in_epoch.get(spec.key.epoch - spec.task.lanes, ()))
            if not waits_for:
                return self._take(index)
            self._waits_for[index] = waits_for
            for key in waits_for:
                self._waiting.setdefault(key, []).append(index)
        if idle and self._waits_for:
            first = min(self._waits_for)
            del self._waits_for[first]
            return self._take(first)
        return None

    def _take(self, index: int) -> EpisodeSpec:
        self._new -= 1
        return self._plan[index]
