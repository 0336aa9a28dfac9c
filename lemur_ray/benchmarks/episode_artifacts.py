"""What was seen in an episode and is kept in files beside its ledger: pictures and whole texts, declared by benchmarks.

Knows no page that shows them and no benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

Box = tuple[float, float, float, float]
"""x, y, width, height in pixels of the picture."""


@dataclass(frozen=True)
class View:
    """What was seen after a turn; of turn 0 before the first reply."""

    turn: int
    picture: Path | None = None
    """A PNG file"""
    text: str = ""
    """All that was seen, in words, of which a model may have been shown a part"""
    acted_on: Box | None = None
    """Where in the picture the next action went"""
