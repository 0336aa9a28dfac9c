"""Breaches of the rules in ``rules.json`` (name -> reason), each of which caught an error that a schema accepted."""

import json
from dataclasses import dataclass
from pathlib import Path

RULES: dict[str, str] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""Rule -> reason."""


@dataclass(frozen=True)
class Breach:
    """A rule that a document breaks."""

    rule: str
    sentence: str
    """What is wrong, with the actual and the expected value."""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise KeyError(self.rule)

    def __str__(self) -> str:
        return f"{self.sentence} [{self.rule}: {RULES[self.rule]}]"
