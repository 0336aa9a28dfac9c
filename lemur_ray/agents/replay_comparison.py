"""Comparison of a replayed episode with its recording, besides success: counts, and shares of them, per benchmark.

Each benchmark declares its comparison; the report adds up the counts of all episodes and computes the shares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lemur_ray.agents.trajectory import Episode

LIKENESS = ("exact", "normalised", "same_error", "different")
"""How alike two observations are. ``normalised``: equal without machine-dependent parts"""


@dataclass(frozen=True)
class EpisodeComparison:
    """Result of comparing one replayed episode with its recording: ``counts`` by name (``Comparison.counts``), and how
    many observations of executed code (``cells``) and others (``answers``) are alike."""

    counts: Mapping[str, int]
    cells: Mapping[str, int] = field(default_factory=dict)
    """Number of observations of executed code per ``LIKENESS``; a prefix of the name marks separate groups"""
    answers: Mapping[str, int] = field(default_factory=dict)
    """Number of all other observations that are ``equal`` or ``different``."""
    different_cells: tuple[tuple[int, str, str], ...] = ()
    """(turn, recorded observation, replayed observation) of every executed cell that differs."""


@dataclass(frozen=True)
class Comparison:
    """How a benchmark compares replays with recordings. ``of``: compares an episode with its ``RecordedEpisode``."""

    of: Callable[[Episode, Any], EpisodeComparison]
    counts: tuple[str, ...]
    """Names of all counts, in the report's order"""
    shares: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Name of a share in the report -> names of the counts that are its numerator and denominator"""
    has_cells: bool = False
    """Whether observations of executed code are compared, too."""
