"""Progress of a suite: the current benchmark, time and cost so far, and estimates of the remaining time and cost.

Remaining time is estimated from the episodes played in this session, remaining cost from those in the ledgers: for a
benchmark from its own episodes, or from all if it has none yet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass
class PartSoFar:
    """Progress of one benchmark. ``episodes``: number in all; ``left``: without a score. ``seconds``: time in which
    this session played ``played`` episodes; ``before_s``: seconds of earlier sessions."""

    name: str
    episodes: int
    left: int
    played: int = 0
    seconds: float = 0.0
    cost: float = 0.0
    before_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.before_s + self.seconds

    @property
    def scored(self) -> int:
        return self.episodes - self.left


@dataclass(frozen=True)
class ToCome:
    """Estimated remaining seconds and cost; each None if there is no episode yet to estimate it from."""

    seconds: float | None
    cost: float | None


class SuiteProgress:
    """Progress of all benchmarks of a suite. ``clock``: monotonic seconds; ``priced``: whether costs are shown.
    ``parts``: progress of each."""

    def __init__(self, parts: Sequence[PartSoFar], clock: Callable[[], float], priced: bool = False) -> None:
        self.parts = parts
        self.priced = priced
        self._clock = clock
        self._now = 0
        self._began = clock()
        self._left_before = 0

    def start_part(self, number: int) -> None:
        """Make the part with this index, from 0, the current one, and start to time it."""
        self._now, self._began, self._left_before = number, self._clock(), self.parts[number].left

    def update(self, done: int, cost: float) -> None:
        """Update the current part: number of ended episodes and their total cost, both including earlier sessions."""
        part = self.parts[self._now]
        part.left = max(0, part.episodes - done)
        part.played = max(0, self._left_before - part.left)
        part.seconds, part.cost = self._clock() - self._began, cost

    def line(self, done: int, cost: float) -> str:
        """``update``, then "benchmark 2 of 5; suite: 512/1,508 done, 12 min so far, about 23 min to come"."""
        self.update(done, cost)
        episodes = sum(part.episodes for part in self.parts)
        text = f"{episodes - sum(part.left for part in self.parts):,}/{episodes:,} done"
        remaining = self.to_come()
        text += f", {_minutes(sum(part.total_s for part in self.parts))} so far"
        text += f", about {_minutes(remaining.seconds)} to come" if remaining.seconds is not None else ""
        if self.priced:
            text += f", cost {sum(part.cost for part in self.parts):.2f}"
            text += f", about {remaining.cost:.2f} to come" if remaining.cost is not None else ""
        return f"benchmark {self._now + 1} of {len(self.parts)}; suite: {text}"

    def to_come(self) -> ToCome:
        seconds = _estimate(self.parts, lambda part: (part.seconds, part.played))
        cost = _estimate(self.parts, lambda part: (part.cost, part.scored)) if self.priced else None
        return ToCome(seconds, cost)


def _estimate(parts: Sequence[PartSoFar], of: Callable[[PartSoFar], tuple[float, int]]) -> float | None:
    known = [of(part) for part in parts if of(part)[1]]
    if not any(part.left for part in parts):
        return 0.0
    if not known:
        return None
    mean = sum(amount for amount, _ in known) / sum(count for _, count in known)
    return sum(part.left * (of(part)[0] / of(part)[1] if of(part)[1] else mean) for part in parts)


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
