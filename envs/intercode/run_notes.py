"""Notes on InterCode's runs for report pages: differences from the paper's protocol, and limits of the numbers.

Some facts about a recorded run are only in its file name: ``ic_bash_multiturn_gpt-3.5_10_turns_fs_1.json.gz`` is
gpt-3.5, 10 turns, file system 1."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from envs.published_protocols import published_protocol
from lemur_ray.benchmarks.run_notes import (
    UNKNOWN,
    EvaluationRun,
    PublishedProtocol,
    RecordedName,
    RunDescription,
    protocol_settings,
)

_NAME = re.compile(
    r"ic_(?:sql|bash|ctf|python)_multiturn_(?P<model>.+?)[_-](?P<turns>\d+)_turns(?:_handicap)?(?P<part>_fs_\d)?$"
)
_REPLAY = "replay:"
_PAPER_TURNS = 10
_SPIDER = "spider-"
_LIMITS = {
    "sql": (
        "The environment shows the reward after every query (as the paper's protocol does): the policy may use it.",
    ),
    "bash": (
        "The action `true` alone solves 19 of the 200 tasks (9.5 %): their golds print nothing and change nothing.",
    ),
    "ctf": ("The flags are public: a model may have memorised them, and no number here tells that apart from skill.",),
    "python": (),
}
SAMPLE_DATABASE = (
    "The questions are asked of a small sample database made from this machine's own software, not of Spider's 20 "
    "databases."
)
_COLUMNS = {"sql": "IC-SQL", "bash": "IC-Bash", "ctf": "IC-CTF", "python": ""}
_WORDS: Mapping[str, tuple[str, str]] = {
    "turns": ("turns {value}", f"turns {_PAPER_TURNS}"),
    "handicap": ("handicap", "no handicap"),
    "compat": ("upstream's quirks", "without upstream's quirks"),
    "engine_kind": ("engine {value}", "engine {value}"),
}


def protocol(kind: str) -> PublishedProtocol:
    """The published protocol of ``intercode/<kind>``."""
    return published_protocol(f"intercode/{kind}", further=partial(_departures, kind))


def about(kind: str, run: EvaluationRun) -> RunDescription:
    """Description of a run of ``intercode/<kind>`` for report pages."""
    recorded, protocol = recorded_name(run.policy), protocol_settings(run)
    if run.settings and recorded is not None:
        if "replay" in run.settings:
            protocol["replay"] = run.settings["replay"]
        if recorded.turns not in (0, _PAPER_TURNS):
            protocol["turns"] = recorded.turns
    notes = RunDescription(
        limits=_LIMITS[kind],
        beside=_LIMITS[kind] if kind in ("bash", "ctf") else (),
        column=_COLUMNS[kind],
        departures=() if run.settings else (UNKNOWN,),
        known=bool(run.settings),
        protocol=protocol,
        words=_WORDS,
        engine=str(run.settings.get("engine_kind", "")),
        recorded=recorded,
    )
    if kind == "sql" and not all(task.startswith(_SPIDER) for task in run.tasks):
        return replace(notes, column="", limits=(SAMPLE_DATABASE, *notes.limits), beside=(SAMPLE_DATABASE,))
    return notes


def recorded_name(policy: str) -> RecordedName | None:
    """Model and number of turns, parsed from the log's file name in a replay policy's name; None for other policies."""
    if not policy.startswith(_REPLAY):
        return None
    stem = policy.removeprefix(_REPLAY).split(".json")[0]
    match = _NAME.match(stem)
    if match is None:
        return RecordedName(stem, whole=policy)
    whole = _REPLAY + stem.removesuffix(match["part"] or "")
    return RecordedName(match["model"], turns=int(match["turns"]), whole=whole)


def _departures(kind: str, run: EvaluationRun) -> Sequence[str]:
    settings, recorded = run.settings, recorded_name(run.policy)
    departures = []
    if recorded is not None and recorded.turns not in (0, _PAPER_TURNS):
        departures.append(f"{recorded.turns} turn{'s' * (recorded.turns > 1)}")
    if kind != "sql" and recorded is None and not settings.get("compat"):
        departures.append("without upstream's quirks")
    return departures
