"""Progress of a job, parsed from the lines that it prints: done of total, rate, time left, and one result number.

Pure functions of a line.
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
    """Progress of a job. Texts are as printed by the job, empty where missing."""

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
    """The line without terminal escapes."""
    return _ESCAPES.sub("", line).rstrip()


def of_line(line: str) -> Progress | None:
    """Progress in a line of training, of episodes or of a corpus; None for any other line."""
    done_of = _DONE.search(line)
    if done_of is None:
        return None
    done, total = (int(text) for text in done_of.groups() if text is not None)
    number, rate, left = (pattern.search(line, done_of.end()) for pattern in (_NUMBER, _RATE, _LEFT))
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
