"""Comparison of a replayed episode with its recording, besides success; benchmarks declare it.

The report adds up all episodes and computes the shares. Knows no format and no environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lemur_ray.agents.trajectory import Episode

LIKENESS = ("exact", "normalised", "same_error", "different")
"""Likeness of two observations; ``normalised``: equal without machine-dependent parts"""


@dataclass(frozen=True)
class EpisodeComparison:
    """Comparison result of one episode."""

    counts: Mapping[str, int]
    cells: Mapping[str, int] = field(default_factory=dict)
    """Observations of executed code, by likeness; a prefix marks separate groups"""
    answers: Mapping[str, int] = field(default_factory=dict)
    """All other observations: equal, different."""
    different_cells: tuple[tuple[int, str, str], ...] = ()
    """(turn, recorded, ours) of every cell that differs."""


@dataclass(frozen=True)
class Comparison:
    """``of``: compares an episode that has a score with its recorded one."""

    of: Callable[[Episode, Any], EpisodeComparison]
    counts: tuple[str, ...]
    """Names of all counts, in the report's order"""
    shares: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Name in a report -> numerator and denominator, both names of counts"""
    has_cells: bool = False
    """Whether observations are compared, too."""
