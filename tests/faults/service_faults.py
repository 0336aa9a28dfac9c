"""Faults of a bucket service: answers that fail, and addresses that are cut off."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class Trouble:
    """What happens to the next requests whose ``METHOD path?query`` matches; the first trouble that fits counts."""

    match: str = "."
    times: int = 1
    skip: int = 0
    """Requests that match and pass before it begins."""
    status: int = 0
    """Answer with this status instead."""
    slow_s: float = 0.0
    """Wait before anything is done."""
    drop: bool = False
    """Close the connection before anything is done."""
    lost: bool = False
    """Do what is asked, then close the connection without an answer."""
    truncate: int = -1
    """Close the connection after so many bytes of the answer's body."""
    stop: bool = False
    """Keep the connection open and never answer."""


@dataclass
class Entrance:
    """An address of a service, whose clients the history knows by its name, and which can be cut off alone."""

    name: str
    url: str = ""
    is_open: threading.Event = field(default_factory=threading.Event)

    @property
    def environment(self) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": self.url}

    def cut(self) -> None:
        """Let nothing through until ``mend``: requests wait, those whose client gives up meanwhile never arrive."""
        self.is_open.clear()

    def mend(self) -> None:
        self.is_open.set()
