"""What a run's settings say of its protocol: how it departs from the paper's, and from another run's.

Settings are those that ``evaluations.json`` keeps for a recipe; a run without them says so. Nothing is read from what
a model or an environment wrote. Knows no page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.report.paper import COLUMNS
from lemur_ray.report.recording_names import recorded_name

Settings = Mapping[str, Any]
UNKNOWN = "settings not recorded"
_PAPER_TURNS = 10
_TEACHING = ("feedback", "teacher", "ground_truth")
_OF_THE_MODEL = ("prompt", "max_tokens", "temperature", "seed")
"""Settings that a policy without a model takes no notice of."""


def teacher_of(policy: str, settings: Settings) -> str:
    """Whose feedback the run was played with, in words; empty for none.

    A replay of MINT says it in its name (``F=gpt-4-0613``), every other run in its settings.
    """
    named = recorded_name(policy)
    if named is not None and named.teacher:
        return named.teacher
    feedback = str(settings.get("feedback", "none"))
    if feedback == "none":
        return ""
    words = [feedback, *([str(settings["teacher"])] if settings.get("teacher") else [])]
    return ", ".join([*words, *(["knows the solution"] if settings.get("ground_truth") else [])])


def as_played(policy: str, settings: Settings) -> dict[str, Any]:
    """The protocol that settings and the name of a recording say together; empty where the settings are not known.

    A recording adds its teacher, its turns where they are not ten, and its recorded search; which recording it is
    belongs to who plays, as a model does, and not to the protocol.
    """
    if not settings:
        return {}
    found = {name: value for name, value in settings.items() if name not in (*_TEACHING, "recording")}
    if teacher := teacher_of(policy, settings):
        found["feedback"] = teacher
    named = recorded_name(policy)
    if named is None:
        found.pop("replay", None)
    elif "wikipedia" in found:
        found["wikipedia"] = "as recorded"
    if named is not None and named.turns not in (0, _PAPER_TURNS):
        found["turns"] = named.turns
    return found


def is_spider(episodes: Sequence[Episode]) -> bool:
    """Whether all these questions are of Spider's databases; the sample database has none of its names."""
    return all(e.key.task.startswith("spider-") for e in episodes)


def departures(policy: str, benchmark: str, settings: Settings) -> list[str]:
    """Where settings depart from the protocol of the paper's column, in words; feedback is no departure."""
    if not settings:
        return [UNKNOWN]
    named = recorded_name(policy)
    found: list[str] = []
    if settings.get("prompt") == "brief":
        found.append("brief prompt")
    if settings.get("temperature"):
        found.append(f"temperature {settings['temperature']:g}")
    if named is not None and named.turns and named.turns != _PAPER_TURNS and benchmark.startswith("intercode/"):
        found.append(f"{named.turns} turn{'s' * (named.turns > 1)}")
    if benchmark == "intercode/sql":
        if settings.get("reward", "iou") != "iou":
            found.append(f"reward {settings['reward']}")
        if not settings.get("handicap"):
            found.append("no handicap")
    elif benchmark.startswith("intercode/") and named is None and not settings.get("compat"):
        found.append("without upstream's quirks")
    elif benchmark.startswith("mint/"):
        if grader_of(settings) != "mint-2023":
            found.append(f"{grader_of(settings)} grader")
        if settings.get("option_rule", "legacy") != "legacy" and benchmark == "mint/theoremqa":
            found.append(f"option rule {settings['option_rule']}")
        if settings.get("parser", "tags") != "tags":
            found.append(f"{settings['parser']} parser")
        if named is None and str(settings.get("wikipedia", "none")) == "none":
            found.append("no search")
        if named is not None and settings.get("replay") == "strict":
            found.append("code run again")
    return found


def grader_of(settings: Settings) -> str:
    """MINT's grader, or empty where it is not known."""
    return str(settings.get("judged_by", ""))


def tasks_short(benchmark: str, episodes: Sequence[Episode]) -> str:
    """``76 of 100 tasks`` where a run is not of all tasks of the paper's column; else empty."""
    whole, played = COLUMNS[benchmark].n, len({e.key.task for e in episodes})
    return f"{COLUMNS[benchmark].column}: {played:,} of {whole:,} tasks" if played != whole else ""


def differences(many: Sequence[Settings], without_model: bool = False) -> list[list[str]]:
    """For each of several settings, those values that are not the same in all, in words.

    ``without_model``: leave out what only a model takes notice of. Unknown settings say that they are unknown.
    """
    skipped = _OF_THE_MODEL if without_model else ()
    names = [name for settings in many for name in settings if name not in skipped]
    parted = [
        name for name in dict.fromkeys(names) if len({repr(settings.get(name)) for settings in many if settings}) > 1
    ]
    some_unknown = any(not settings for settings in many) and any(many)
    return [
        [_words(name, settings.get(name)) for name in parted] if settings else [UNKNOWN] if some_unknown else []
        for settings in many
    ]


def _words(name: str, value: Any) -> str:
    if name == "feedback":
        return f"feedback of {value}" if value else "no feedback"
    if name == "replay":
        return f"replay {value}" if value else "played, not replayed"
    if name == "turns":
        return f"turns {value}" if value else f"turns {_PAPER_TURNS}"
    if name == "handicap":
        return "handicap" if value else "no handicap"
    if name == "compat":
        return "upstream's quirks" if value else "without upstream's quirks"
    if name == "judged_by":
        return f"{value} grader"
    if name == "prompt":
        return f"{value} prompt"
    if name == "data":
        return f"data {' '.join(str(one)[:6] for one in value or ()) or 'unknown'}"
    return f"{name.replace('_kind', '').replace('_', ' ')} {value}"
