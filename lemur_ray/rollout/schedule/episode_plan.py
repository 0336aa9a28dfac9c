"""The sequence of all episodes of a run: tasks times epochs, each ``EpisodeSpec`` created on access.

Even in a run of a hundred thousand episodes, only those in flight are in memory."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import overload

from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import EpisodeKey, Task
from lemur_ray.rollout.attempt import EpisodeLimits, EpisodeSpec


class EpisodePlan(Sequence[EpisodeSpec]):
    """All episodes of a run: every task in epoch 0, then every task in epoch 1, and so on."""

    def __init__(
        self,
        tasks: Iterable[Task],
        *,
        epochs: int,
        policy: str,
        recipe: str,
        sampling: Sampling,
        limits: EpisodeLimits,
        turns: str = "",
    ) -> None:
        """``policy``, ``recipe``: parts of every episode's key. ``turns``: folder for the turns of running episodes;
        empty: none. Raises ValueError if two tasks have the same id."""
        self._tasks = tuple(tasks)
        self._epochs, self._policy, self._recipe = epochs, policy, recipe
        self._sampling, self._limits, self._turns = sampling, limits, turns
        duplicates = sorted(name for name, count in Counter(task.id for task in self._tasks).items() if count > 1)
        if duplicates:
            raise ValueError(f"{len(duplicates)} task ids occur twice, for example {duplicates[0]!r}")

    def __len__(self) -> int:
        return len(self._tasks) * self._epochs

    @overload
    def __getitem__(self, index: int) -> EpisodeSpec: ...

    @overload
    def __getitem__(self, index: slice) -> list[EpisodeSpec]: ...

    def __getitem__(self, index: int | slice) -> EpisodeSpec | list[EpisodeSpec]:
        if isinstance(index, slice):
            return [self[one] for one in range(len(self))[index]]
        epoch, number = divmod(range(len(self))[index], len(self._tasks))
        task = self._tasks[number]
        key = EpisodeKey(task.benchmark, task.id, self._policy, self._recipe, epoch)
        return EpisodeSpec(key, task, self._sampling, self._limits, turns=self._turns)
