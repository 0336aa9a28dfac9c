"""The immutable description of one ALFWorld game: furniture, things, start positions and goal.

Built from a generated ``GameSpec`` or a PDDL problem (``pddl_problem``). Names are those that players see, in order."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from envs.alfworld.games.catalogue import FITS, LAMP, LIGHT, OPENABLE, TASK_TYPES, TOOLS, TREATABLE, TREATMENTS, TWO
from envs.alfworld.games.spec import GameSpec

GrammarName = Literal["old", "new"]
"""Wording of commands: old has ``put X in/on Y`` (alfworld 0.3), new ``move X to Y`` (>= 0.4); see ``grammar``."""


@dataclass(frozen=True)
class Receptacle:
    """A piece of furniture. ``kind`` is its class in lower case; several pieces may share one ``location``."""

    name: str
    kind: str
    openable: bool
    location: str


@dataclass(frozen=True)
class Thing:
    """A small object. ``kind``: its class in lower case; ``portable``, ``switchable``, ``sliceable``: whether it can be
    taken, turned on, cut; ``treatable``: which of clean, heat, cool work on it."""

    name: str
    kind: str
    portable: bool
    switchable: bool
    treatable: frozenset[str]
    sliceable: bool = False
    holding: tuple[str, ...] | None = None
    """Names of the things in a vessel (a pot, a plate); no command takes them out. None if the thing is no vessel."""


@dataclass(frozen=True)
class Goal:
    """The winning condition: an ``object`` (``two``: two) at a ``target``, both classes, after ``verb`` if not None.
    ``target`` is furniture or, with ``light``, the lamp that must be lit while the player holds the object."""

    object: str
    target: str
    verb: str | None = None
    two: bool = False
    light: bool = False


def goal_of(task_type: str, thing: str, target: str) -> Goal:
    """The goal of a task type for an object and a target, given by their classes."""
    treatment = TREATMENTS.get(task_type)
    verb = treatment.verb if treatment else None
    return Goal(thing.lower(), target.lower(), verb, two=task_type == TWO, light=task_type == LIGHT)


@dataclass(frozen=True)
class Start:
    """A game's state before the first command: where the player stands, and what lies where."""

    location: str
    """The player's location."""
    inside: tuple[tuple[str, str], ...]
    """(thing, receptacle it is in or on) pairs. In the real games a thing may have several, or none."""
    lying: tuple[tuple[str, str], ...]
    """(thing, location) pairs. In the real games this is not always the receptacle's location."""
    opened: tuple[str, ...] = ()
    """Receptacles that are open."""
    states: tuple[tuple[str, str], ...] = ()
    """(thing, one of clean, hot, cool, lit, sliced)."""


@dataclass(frozen=True)
class Game:
    """A game before play; it never changes. Fields that the constructor does not take are indexes of the others."""

    task: str
    """The goal as a sentence."""
    goal: Goal
    receptacles: tuple[Receptacle, ...]
    things: tuple[Thing, ...]
    """All things and (``receptacles``) furniture, each in the order in which the game lists them."""
    start: Start
    fits: frozenset[tuple[str, str]]
    """(furniture class, thing class) pairs, lower case: the first can hold the second."""
    tools: frozenset[tuple[str, str]] = TOOLS
    """(verb, furniture class) pairs: what cleans, heats and cools."""
    grammar: GrammarName = "new"
    receptacle: Mapping[str, Receptacle] = field(init=False, repr=False, compare=False)
    thing: Mapping[str, Thing] = field(init=False, repr=False, compare=False)
    """Name -> thing, and (``receptacle``) name -> furniture."""
    at: Mapping[str, tuple[Receptacle, ...]] = field(init=False, repr=False, compare=False)
    """Location -> the furniture there, in the game's order; locations without any are not in it."""
    rank: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """Name of a thing -> its position in any list of things."""
    wanted: frozenset[str] = field(init=False, repr=False, compare=False)
    """Names of the things that can serve as the goal's object."""
    targets: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Names of the furniture or, in a goal of light, the lamps that can serve as the goal's target."""

    def __post_init__(self) -> None:
        at: dict[str, list[Receptacle]] = defaultdict(list)
        for receptacle in self.receptacles:
            at[receptacle.location].append(receptacle)
        goal = self.goal
        targets: Iterable[Receptacle | Thing] = self.receptacles
        if goal.light:
            targets = (thing for thing in self.things if thing.switchable)
        derived = {
            "receptacle": {r.name: r for r in self.receptacles},
            "thing": {t.name: t for t in self.things},
            "at": {location: tuple(there) for location, there in at.items()},
            "rank": {t.name: i for i, t in enumerate(self.things)},
            "wanted": frozenset(
                t.name for t in self.things if t.kind == goal.object and (goal.verb is None or goal.verb in t.treatable)
            ),
            "targets": tuple(target.name for target in targets if target.kind == goal.target),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_spec(cls, spec: GameSpec) -> Self:
        """Build a game. Raises ValueError for an unknown type or furniture, a duplicate id, a thing in none."""
        if spec.task_type not in TASK_TYPES:
            raise ValueError(f"task type {spec.task_type!r}: expected one of {', '.join(TASK_TYPES)}")
        if unknown := sorted({kind for kind, _ in spec.receptacles} - set(FITS)):
            raise ValueError(f"unknown furniture {unknown}: expected classes of {sorted(FITS)}")
        names = shown_names([i for _, i in spec.receptacles] + [i for _, i, _ in spec.things])
        place = {i.lower(): names[i.lower()] for _, i in spec.receptacles}
        things = sorted(spec.things, key=lambda row: row[1].lower())
        if lost := [i for _, i, where in things if where.lower() not in place]:
            raise ValueError(f"things {lost} start in a receptacle that the game does not have")
        start, *free = (f"loc_bar_{number:02d}" for number in range(len(spec.receptacles) + 1))
        shown = shown_names([start, *free])
        location = {i.lower(): shown[where] for (_, i), where in zip(spec.receptacles, free, strict=True)}
        return cls(
            task=spec.task,
            goal=goal_of(spec.task_type, spec.object, spec.target),
            receptacles=tuple(
                Receptacle(place[i.lower()], kind.lower(), kind in OPENABLE, location[i.lower()])
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
            start=Start(
                location=shown[start],
                inside=tuple((names[i.lower()], place[where.lower()]) for _, i, where in things),
                lying=tuple((names[i.lower()], location[where.lower()]) for _, i, where in things),
            ),
            fits=frozenset(
                (furniture.lower(), kind.lower())
                for furniture in {kind for kind, _ in spec.receptacles}
                for kind in {kind for kind, _, _ in spec.things}
                if kind in FITS[furniture]
            ),
        )


def shown_names(ids: Iterable[str]) -> dict[str, str]:
    """Map each id, in lower case, to the name a player sees, such as "mug 2", by ALFWorld's rule (its ``Demangler``).
    The name is the part before the first ``_bar_``, with "basin" added if the id contains it; the ids of one name,
    sorted, are numbered from high to low. Raises ValueError on a duplicate id."""
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
