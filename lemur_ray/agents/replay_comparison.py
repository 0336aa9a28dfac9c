"""What of a replayed episode is compared with its recording, besides whether both are solved: declared by benchmarks.

The sums over all episodes, and the shares that they come to, are the report's. Knows no format and no environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lemur_ray.agents.trajectory import Episode

LIKENESS = ("exact", "normalised", "same_error", "different")
"""How like two observations are; ``normalised``: without what depends on the machine."""


@dataclass(frozen=True)
class EpisodeComparison:
    """One episode beside its recording."""

    counts: Mapping[str, int]
    cells: Mapping[str, int] = field(default_factory=dict)
    """Observations of what was run, by likeness; what is told apart from the rest has a word in front."""
    answers: Mapping[str, int] = field(default_factory=dict)
    """All other observations: equal, different."""
    different_cells: tuple[tuple[int, str, str], ...] = ()
    """(turn, recorded, ours) of every cell that differs."""


@dataclass(frozen=True)
class Comparison:
    """``of``: compares an episode that has a score with its recorded one."""

    of: Callable[[Episode, Any], EpisodeComparison]
    counts: tuple[str, ...]
    """Names of all its counts, in the order in which they are reported."""
    shares: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Name in a report -> the two counts that it is the share of."""
    has_cells: bool = False
    """Whether observations are compared, too."""
