"""Artifacts of an episode in files beside its ledger: screenshots and whole texts, declared by benchmarks.

Knows no page that shows them and no benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

Box = tuple[float, float, float, float]
"""x, y, width, height in pixels of the picture."""


@dataclass(frozen=True)
class View:
    """The observation after a turn; turn 0: before the first reply."""

    turn: int
    picture: Path | None = None
    """A PNG file"""
    text: str = ""
    """The whole observation as text, of which the model may have got a part"""
    acted_on: Box | None = None
    """Target of the next action in the picture"""
