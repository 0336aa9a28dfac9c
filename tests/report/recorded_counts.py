"""What a recorded run of MINT comes to by its own verdicts: printed tables and counted episodes are held against it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from envs.mint.recording import read_recording

_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Counts:
    """Episodes of a run, those solved, and those failed with a traceback or with an invalid action."""

    n: int
    solved: int
    with_traceback: int
    with_invalid: int

    def percent(self, what: str = "solved") -> float:
        """Two decimals, as the paper prints."""
        return round(100 * getattr(self, what) / self.n, 2)


def counts_of_recording(file: Path) -> Counts:
    """Counts of one subset of a recorded run, from what its log says of every episode."""
    episodes = read_recording(file).episodes.values()
    failed = [episode for episode in episodes if not episode.solved]
    traceback = [e for e in failed if any(_TRACEBACK in (turn.observation or "") for turn in e.turns)]
    invalid = [e for e in failed if e.counts["invalid_action"] > 0]
    return Counts(len(episodes), len(episodes) - len(failed), len(traceback), len(invalid))


def together(counts: Iterable[Counts]) -> tuple[int, int]:
    """Solved episodes and all episodes of several subsets."""
    listed = list(counts)
    return sum(c.solved for c in listed), sum(c.n for c in listed)
