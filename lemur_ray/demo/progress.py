"""How far a job is, read from the lines that it prints: done of total, rate, time left, and its one number.

Pure functions of a line. Knows nothing of who runs the job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
_DONE = re.compile(
    r"\bstep +(?P<s>\d+)/(?P<steps>\d+)\b|(?P<e>\d+)/(?P<tasks>\d+) done\b|(?P<p>\d+) of (?P<parts>\d+) parts\b"
)
_NUMBER = re.compile(r"\bloss [\d.]+|\b\d+ solved\b")
_RATE = re.compile(r"[\d,.]+(?: tokens)?/s\b")
_LEFT = re.compile(r"\b(?:\d+ d \d+ h|[\d:]+) left\b")


@dataclass(frozen=True)
class Progress:
    """Where a job stands. Texts are as the job says them, empty where it does not."""

    done: int
    total: int
    rate: str = ""
    left: str = ""
    number: str = ""

    @property
    def share(self) -> float:
        """Between 0 and 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0


def plain(line: str) -> str:
    """The line without what terminals read in it."""
    return _ESCAPES.sub("", line).rstrip()


def of_line(line: str) -> Progress | None:
    """What a line of training, of episodes or of a corpus says; None where it says nothing of the kind."""
    found = _DONE.search(line)
    if found is None:
        return None
    done, total = (int(text) for text in found.groups() if text is not None)
    number, rate, left = (pattern.search(line, found.end()) for pattern in (_NUMBER, _RATE, _LEFT))
    return Progress(done, total, *(match[0] if match else "" for match in (rate, left, number)))


def result_of(line: str) -> dict[str, Any] | None:
    """The JSON object that a job prints last; None for any other line."""
    if not line.startswith("{"):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def number_of(result: Mapping[str, Any]) -> str:
    """The one number of a job's result."""
    if isinstance(result.get("solved"), int) and "n" in result:
        missing = f", {result['missing']} missing" if result.get("missing") else ""
        return f"{result['solved']} of {result['n']} solved{missing}"
    if isinstance(result.get("loss"), float):
        return f"loss {result['loss']:.3f}"
    if isinstance(result.get("tokens"), dict):
        return f"{sum(result['tokens'].values()) / 1e6:.1f} million tokens"
    return ""
