"""How runs depart from the paper's columns and from one another, in words that their benchmarks have for settings.

Settings are those that ``evaluations.json`` keeps for a recipe; a run without them says so. Knows no page and no
benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.run_notes import UNKNOWN, RunDescription
from lemur_ray.report.paper import COLUMNS

_OF_THE_MODEL = ("prompt", "max_tokens", "temperature", "seed")
"""Settings that a policy without a model takes no notice of."""
_WORDS = {"replay": ("replay {value}", "played, not replayed"), "prompt": ("{value} prompt", "{value} prompt")}
_DATA_DIGITS = 6


def incomplete_tasks(column: str, episodes: Sequence[Episode]) -> str:
    """``76 of 100 tasks`` where a run is not of all tasks of the paper's column; else empty."""
    whole, played = COLUMNS[column].n, len({e.key.task for e in episodes})
    return f"{column}: {played:,} of {whole:,} tasks" if whole and played != whole else ""


def differences(many: Sequence[RunDescription], without_model: bool = False) -> list[list[str]]:
    """For each of several runs, those of its settings that are not the same in all, in words.

    ``without_model``: leave out what only a model takes notice of. Unknown settings say that they are unknown.
    """
    skipped = _OF_THE_MODEL if without_model else ()
    names = [name for about in many for name in about.protocol if name not in skipped]
    known = [about.protocol for about in many if about.protocol]
    parted = [name for name in dict.fromkeys(names) if len({repr(kept.get(name)) for kept in known}) > 1]
    words = {name: said for about in many for name, said in about.words.items()}
    some_unknown = len(known) < len(many) and bool(known)
    return [
        [_said(words, name, about.protocol.get(name)) for name in parted]
        if about.protocol
        else [UNKNOWN]
        if some_unknown
        else []
        for about in many
    ]


def _said(words: Mapping[str, tuple[str, str]], name: str, value: Any) -> str:
    if name == "data":
        return f"data {' '.join(str(one)[:_DATA_DIGITS] for one in value or ()) or 'unknown'}"
    there, absent = {**_WORDS, **words}.get(name, (f"{name.replace('_', ' ')} {{value}}",) * 2)
    return (there if value else absent).format(value=value)
