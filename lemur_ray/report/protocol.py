"""Differences of settings between runs, and from the paper's columns, in the words of their benchmarks.

Settings are those in ``evaluations.json``; a run without them counts as unknown. Knows no page and no benchmark."""

from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.run_notes import UNKNOWN, RunDescription
from lemur_ray.report.paper import COLUMNS

_MODEL_SETTINGS = ("prompt", "max_tokens", "temperature", "seed")
"""Settings that a policy without a model ignores."""
_WORDS = {"replay": ("replay {value}", "played, not replayed"), "prompt": ("{value} prompt", "{value} prompt")}
_DATA_DIGITS = 6


def incomplete_tasks(column: str, episodes: Sequence[Episode]) -> str:
    """``76 of 100 tasks`` for a run without some tasks of the paper's column; else empty."""
    whole, played = COLUMNS[column].n, len({e.key.task for e in episodes})
    return f"{column}: {played:,} of {whole:,} tasks" if whole and played != whole else ""


def differences(many: Sequence[RunDescription], without_model: bool = False) -> list[list[str]]:
    """For each of several runs, the settings that are not the same in all, as texts. ``without_model``: leave out
    settings that only a model uses. A run with unknown settings gets the text ``UNKNOWN``."""
    skipped = _MODEL_SETTINGS if without_model else ()
    names = [name for about in many for name in about.protocol if name not in skipped]
    known = [about.protocol for about in many if about.protocol]
    parted = [name for name in dict.fromkeys(names) if len({repr(settings.get(name)) for settings in known}) > 1]
    words = {name: phrases for about in many for name, phrases in about.words.items()}
    some_unknown = len(known) < len(many) and bool(known)
    return [
        [_setting_text(words, name, about.protocol.get(name)) for name in parted]
        if about.protocol
        else [UNKNOWN]
        if some_unknown
        else []
        for about in many
    ]


def _setting_text(words: Mapping[str, tuple[str, str]], name: str, value: Any) -> str:
    if name == "data":
        return f"data {' '.join(str(one)[:_DATA_DIGITS] for one in value or ()) or 'unknown'}"
    there, absent = {**_WORDS, **words}.get(name, (f"{name.replace('_', ' ')} {{value}}",) * 2)
    return (there if value else absent).format(value=value)
