"""What a game is: furniture, things, where they start, and the goal; immutable, parsed once, played many times.

``GameSpec`` is the small JSON form a generator yields and a task carries. ``Game`` is what the engine reads: names as
the player sees them, in the order the game lists them. Knows nothing of play, of texts or of PDDL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from envs.alfworld.games.catalogue import (
    FITS,
    LAMP,
    LIGHT,
    OPENABLE,
    TASK_TYPES,
    TREATABLE,
    TREATMENTS,
    TWO,
)


@dataclass(frozen=True)
class GameSpec:
    """A game as data. Ids are ALFRED's (``Cabinet_bar_02``, ``Mug_bar_00_bar_o``), classes its CamelCase names."""

    task_type: str
    room: str
    task: str
    object: str
    target: str
    receptacles: tuple[tuple[str, str], ...]
    """(class, id) of every piece of furniture."""
    things: tuple[tuple[str, str, str], ...]
    """(class, id, id of the receptacle it starts in) of every small thing."""
    origin: str = ""
    """Where the game comes from, for people: split, seed and index of a generated one."""

    @property
    def triple(self) -> tuple[str, str, str]:
        return self.task_type, self.object, self.target

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> GameSpec:
        """Inverse of ``to_json``. Raises ValueError that says what is wrong."""
        known = set(cls.__dataclass_fields__)
        if unknown := set(value) - known:
            raise ValueError(f"game spec has unknown fields {sorted(unknown)}: expected {sorted(known)}")
        if missing := known - {"origin"} - set(value):
            raise ValueError(f"game spec lacks {sorted(missing)}")
        words = {name: value[name] for name in ("task_type", "room", "task", "object", "target")}
        if bad := [name for name, word in words.items() if not isinstance(word, str)]:
            raise ValueError(f"game spec: {bad} must be strings")
        return cls(
            **words,
            receptacles=_rows(value["receptacles"], 2, "receptacles"),
            things=_rows(value["things"], 3, "things"),
            origin=str(value.get("origin", "")),
        )


def _rows(value: Any, width: int, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"game spec: {name} is a {type(value).__name__}, expected a list of {width}-tuples of strings")
    rows = tuple(tuple(row) if isinstance(row, list | tuple) else (row,) for row in value)
    for row in rows:
        if len(row) != width or not all(isinstance(cell, str) for cell in row):
            raise ValueError(f"game spec: {row!r} in {name}, expected {width} strings")
    return rows


@dataclass(frozen=True)
class Receptacle:
    """A piece of furniture one can stand at. ``kind`` is its class in lower case."""

    name: str
    kind: str
    openable: bool


@dataclass(frozen=True)
class Thing:
    """A small object. ``treatable`` holds the verbs (clean, heat, cool) that work on it."""

    name: str
    kind: str
    portable: bool
    switchable: bool
    treatable: frozenset[str]


@dataclass(frozen=True)
class Goal:
    """What must hold in the end. ``target`` is a furniture class, or the lamp's class when ``light``."""

    object: str
    target: str
    verb: str | None = None
    two: bool = False
    light: bool = False


@dataclass(frozen=True)
class Game:
    """The unchanging part of a game, by the names a player sees, in the order a player is told them."""

    task: str
    goal: Goal
    receptacles: tuple[Receptacle, ...]
    things: tuple[Thing, ...]
    start: tuple[str, ...]
    """Name of the receptacle of each thing at the start, parallel to ``things``."""
    fits: frozenset[tuple[str, str]]
    """(furniture class, thing class) pairs, lower case: the first can hold the second."""
    receptacle: Mapping[str, Receptacle] = field(init=False, repr=False, compare=False)
    thing: Mapping[str, Thing] = field(init=False, repr=False, compare=False)
    rank: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """Name of a thing -> its place in any list of things."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "receptacle", {r.name: r for r in self.receptacles})
        object.__setattr__(self, "thing", {t.name: t for t in self.things})
        object.__setattr__(self, "rank", {t.name: i for i, t in enumerate(self.things)})

    @classmethod
    def from_spec(cls, spec: GameSpec) -> Game:
        """Raises ValueError for an unknown task type or class, a doubled id, or a thing in no receptacle."""
        if spec.task_type not in TASK_TYPES:
            raise ValueError(f"task type {spec.task_type!r}: expected one of {', '.join(TASK_TYPES)}")
        if unknown := sorted({kind for kind, _ in spec.receptacles} - set(FITS)):
            raise ValueError(f"unknown furniture {unknown}: expected classes of {sorted(FITS)}")
        names = shown_names([i for _, i in spec.receptacles] + [i for _, i, _ in spec.things])
        place = {i.lower(): names[i.lower()] for _, i in spec.receptacles}
        things = sorted(spec.things, key=lambda row: row[1].lower())
        if lost := [i for _, i, where in things if where.lower() not in place]:
            raise ValueError(f"things {lost} start in a receptacle that the game does not have")
        treatment = TREATMENTS.get(spec.task_type)
        return cls(
            task=spec.task,
            goal=Goal(
                object=spec.object.lower(),
                target=spec.target.lower(),
                verb=treatment.verb if treatment else None,
                two=spec.task_type == TWO,
                light=spec.task_type == LIGHT,
            ),
            receptacles=tuple(
                Receptacle(place[i.lower()], kind.lower(), kind in OPENABLE)
                for kind, i in sorted(spec.receptacles, key=lambda row: row[1].lower())
            ),
            things=tuple(
                Thing(
                    name=names[i.lower()],
                    kind=kind.lower(),
                    portable=kind != LAMP,
                    switchable=kind == LAMP,
                    treatable=frozenset(verb for verb, kinds in TREATABLE.items() if kind in kinds),
                )
                for kind, i, _ in things
            ),
            start=tuple(place[where.lower()] for _, _, where in things),
            fits=frozenset(
                (furniture.lower(), kind.lower())
                for furniture in {kind for kind, _ in spec.receptacles}
                for kind in {kind for kind, _, _ in spec.things}
                if kind in FITS[furniture]
            ),
        )


def shown_names(ids: Iterable[str]) -> dict[str, str]:
    """Lower-case id -> the name a player sees.

    ALFWorld's rule (its ``Demangler``): the name is what stands before the first ``_bar_``, with "basin" added if the
    id holds that word; the ids of one name, sorted, are numbered from high to low. Raises ValueError on a doubled id.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for identity in sorted(i.lower() for i in ids):
        stem = identity.split("_bar_", 1)[0] + ("basin" if "basin" in identity else "")
        if groups[stem] and groups[stem][-1] == identity:
            raise ValueError(f"id {identity} is used twice")
        groups[stem].append(identity)
    return {
        identity: f"{stem} {len(group) - place}"
        for stem, group in groups.items()
        for place, identity in enumerate(group)
    }
