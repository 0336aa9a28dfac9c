"""How far a suite is: which of its benchmarks is played, and time and cost so far and, about, to come.

What is to come is reckoned from the episodes that were played in this session (time) and that are in the ledgers
(cost): of a benchmark from its own, of one that has none yet from all. Knows no ledger and draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass
class PartSoFar:
    """Of one benchmark. ``left``: episodes without a score. ``seconds``: of this session, for ``played`` of them;
    ``before_s``: of earlier ones."""

    name: str
    episodes: int
    left: int
    played: int = 0
    seconds: float = 0.0
    cost: float = 0.0
    before_s: float = 0.0

    @property
    def total_s(self) -> float:
        """Seconds of all sessions."""
        return self.before_s + self.seconds

    @property
    def scored(self) -> int:
        return self.episodes - self.left


@dataclass(frozen=True)
class ToCome:
    """None: nobody can say yet."""

    seconds: float | None
    cost: float | None


class SuiteProgress:
    """``clock``: monotonic seconds."""

    def __init__(self, parts: Sequence[PartSoFar], clock: Callable[[], float], priced: bool = False) -> None:
        self.parts = parts
        self.priced = priced
        self._clock = clock
        self._now = 0
        self._began = clock()
        self._left_before = 0

    def begin(self, number: int) -> None:
        """The part with this place (0-based) is played from now on."""
        self._now, self._began, self._left_before = number, self._clock(), self.parts[number].left

    def heard(self, done: int, cost: float) -> None:
        """Of the part that is played: episodes that have ended, earlier ones too, and what all of them cost."""
        part = self.parts[self._now]
        part.left = max(0, part.episodes - done)
        part.played = max(0, self._left_before - part.left)
        part.seconds, part.cost = self._clock() - self._began, cost

    def line(self, done: int, cost: float) -> str:
        """For example ``benchmark 2 of 5; suite: 512/1,508 done, 12 min so far, about 23 min to come``."""
        self.heard(done, cost)
        episodes = sum(part.episodes for part in self.parts)
        said = f"{episodes - sum(part.left for part in self.parts):,}/{episodes:,} done"
        come = self.to_come()
        said += f", {_minutes(sum(part.total_s for part in self.parts))} so far"
        said += f", about {_minutes(come.seconds)} to come" if come.seconds is not None else ""
        if self.priced:
            said += f", cost {sum(part.cost for part in self.parts):.2f}"
            said += f", about {come.cost:.2f} to come" if come.cost is not None else ""
        return f"benchmark {self._now + 1} of {len(self.parts)}; suite: {said}"

    def to_come(self) -> ToCome:
        """Of all parts together."""
        seconds = _reckoned(self.parts, lambda part: (part.seconds, part.played))
        cost = _reckoned(self.parts, lambda part: (part.cost, part.scored)) if self.priced else None
        return ToCome(seconds, cost)


def _reckoned(parts: Sequence[PartSoFar], of: Callable[[PartSoFar], tuple[float, int]]) -> float | None:
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
