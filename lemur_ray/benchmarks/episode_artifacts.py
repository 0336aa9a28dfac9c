"""Screenshots and whole texts of an episode, in files beside its ledger, for its transcript page."""

from dataclasses import dataclass
from pathlib import Path

Box = tuple[float, float, float, float]
"""x, y, width, height in pixels of the picture."""


@dataclass(frozen=True)
class View:
    """Picture and text that an environment stored of the observation after turn ``turn`` (from 1; 0: before the first
    reply). ``acted_on``: the part of the picture that the next action concerns."""

    turn: int
    picture: Path | None = None
    """A PNG file"""
    text: str = ""
    """The whole observation as text; the model may have got only part of it"""
    acted_on: Box | None = None
