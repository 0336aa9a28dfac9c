"""What replays of recorded runs are called on a page, and which of them are one run that lies in several files.

| policy in the ledger | model | what else |
|---|---|---|
| ``replay:gpt-3.5-turbo-0613/F=gpt-4-0613`` | gpt-3.5-turbo | a teacher's feedback |
| ``replay:ic_bash_multiturn_gpt-3.5_10_turns_fs_1.json.gz`` | gpt-3.5 | 10 turns, file system 1 |

Upstream's file names say this and nothing else does. Knows no environment and draws nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.report.paper import MODEL_OF_LOG

_INTERCODE = re.compile(
    r"ic_(?:sql|bash|ctf|python)_multiturn_(?P<model>.+?)[_-](?P<turns>\d+)_turns(?:_handicap)?(?P<part>_fs_\d)?$"
)

_OF_A_PART = ("data", "recording")


@dataclass(frozen=True)
class RecordedName:
    """``model`` as the paper names it where it does. ``teacher``: whose feedback it was given, or empty.

    ``turns``: at most so many, 0 where the name says none. ``whole``: the policy without the part of the data set.
    """

    model: str
    teacher: str = ""
    turns: int = 0
    whole: str = ""

    @property
    def shown(self) -> str:
        """How the run is called where its settings do not stand beside it."""
        parts = [f"{self.model}, recorded"]
        if self.teacher:
            parts.append(f"with feedback of {self.teacher}")
        if self.turns:
            parts.append(f"{self.turns} turn{'s' * (self.turns > 1)}")
        return ", ".join(parts)


def recorded_name(policy: str) -> RecordedName | None:
    """What the name of a replay says; None for every other policy."""
    if not policy.startswith("replay:"):
        return None
    name = policy.removeprefix("replay:")
    model, is_mint, setting = name.partition("/F=")
    if is_mint:
        return RecordedName(MODEL_OF_LOG.get(model, model), "" if setting == "None" else setting, whole=policy)
    stem = name.split(".json")[0]
    found = _INTERCODE.match(stem)
    if found is None:
        return RecordedName(stem, whole=policy)
    whole = "replay:" + stem.removesuffix(found["part"] or "")
    return RecordedName(found["model"], turns=int(found["turns"]), whole=whole)


def join_parts(
    runs: Sequence[list[Episode]], settings: Mapping[str, Mapping[str, Any]]
) -> tuple[list[list[Episode]], dict[str, Mapping[str, Any]]]:
    """Runs with the parts of one recorded run (``fs_1`` to ``fs_4``) put together, and the settings by recipe.

    Parts are of one run if nothing but data and recording differ. The joined run stands at the place of its first
    part, under the name without the part and the recipe of the first. Runs that share a task stay apart.
    """
    places: dict[tuple[str, str, str], int] = {}
    out: list[list[Episode]] = []
    known = dict(settings)
    for run in runs:
        key = run[0].key
        named = recorded_name(key.policy)
        same = {name: value for name, value in settings.get(key.recipe, {}).items() if name not in _OF_A_PART}
        identity = (key.benchmark, named.whole if named else key.policy, repr(sorted(same.items())))
        if named is None or named.whole == key.policy or not same:
            out.append(run)
            continue
        place = places.get(identity)
        taken = {(e.key.task, e.key.epoch) for e in out[place]} if place is not None else set()
        if place is None or taken & {(e.key.task, e.key.epoch) for e in run}:
            places.setdefault(identity, len(out))
            recipe, before = key.recipe, []
        else:
            recipe, before = out[place][0].key.recipe, out[place]
        renamed = [replace(e, key=replace(e.key, policy=named.whole, recipe=recipe)) for e in run]
        if before:
            assert place is not None
            out[place] = before + renamed
            data = [*known[recipe].get("data", []), *settings[key.recipe].get("data", [])]
            known[recipe] = {**known[recipe], "data": sorted(set(data)), "recording": "several"}
        else:
            out.append(renamed)
    return out, known
