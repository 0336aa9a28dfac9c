"""Every episode of a run, in its order: tasks times epochs, each made when it is needed.

A run of a hundred thousand episodes holds only the episodes in flight in memory. Knows nothing of attempts or pools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import overload

from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import EpisodeKey, Task
from lemur_ray.rollout.attempt import EpisodeLimits, EpisodeSpec


class EpisodePlan(Sequence[EpisodeSpec]):
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
    def __getitem__(self, place: int) -> EpisodeSpec: ...

    @overload
    def __getitem__(self, place: slice) -> list[EpisodeSpec]: ...

    def __getitem__(self, place: int | slice) -> EpisodeSpec | list[EpisodeSpec]:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        epoch, number = divmod(range(len(self))[place], len(self._tasks))
        task = self._tasks[number]
        key = EpisodeKey(task.benchmark, task.id, self._policy, self._recipe, epoch)
        return EpisodeSpec(key, task, self._sampling, self._limits)
