"""Reads a PDDL problem of ALFWorld into a game for the engine.

Read are problems in which every receptacle has a location of its own and nothing is sliced or contained in another
thing. Everything else is an error that says what was found, never a game that plays differently from textworld's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from envs.alfworld.games.catalogue import LAMP
from envs.alfworld.games.game import Game, Goal, Receptacle, Thing, shown_names
from envs.alfworld.games.pddl import PREDICATES_OF_VERB

_PLAYED = frozenset(
    {
        *("atlocation", "receptacletype", "receptacleatlocation", "openable", "objecttype", "inreceptacle"),
        *("objectatlocation", "toggleable", "pickupable", "cancontain", "cleanable", "heatable", "coolable"),
    }
)
"""The predicates of an initial state that the engine knows."""


def read_problem(problem: str, task: str) -> Game:
    """The game of a PDDL problem; ``task`` is the goal in words, which a problem does not hold.

    Raises ValueError that names what was found if the problem is not one that the engine plays as textworld would.
    """
    try:
        return _read(parse_pddl(problem), task)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not a PDDL problem of ALFWorld: {type(error).__name__}: {error}") from error


def _read(expression: Any, task: str) -> Game:
    sections = {str(part[0]): part for part in expression[1:] if isinstance(part, list)}
    if missing := {":objects", ":init", ":goal"} - set(sections):
        raise ValueError(f"PDDL problem without {sorted(missing)}")
    declared = _declared(sections[":objects"][1:])
    facts: dict[str, list[Any]] = defaultdict(list)
    for fact in sections[":init"][1:]:
        if fact[0] != "=":
            facts[fact[0]].append(tuple(fact[1:]))
    if odd := sorted(set(facts) - _PLAYED):
        raise ValueError(f"PDDL problem with {odd}: the engine does not play this, use textworld")
    locations = dict(facts["receptacleatlocation"])
    if len(set(locations.values())) < len(locations) or set(locations.values()) & {x for _, x in facts["atlocation"]}:
        raise ValueError("PDDL problem with several receptacles at one location, or one at the start: use textworld")
    names = shown_names([*declared["receptacle"], *declared["object"]])
    furniture, kinds = dict(facts["receptacletype"]), dict(facts["objecttype"])
    place = dict(facts["inreceptacle"])
    one = {predicate: {row[0] for row in facts[predicate]} for predicate in ("openable", "pickupable", "toggleable")}
    able = {verb: {row[0] for row in facts[predicate]} for verb, (predicate, _) in PREDICATES_OF_VERB.items()}
    things = sorted(declared["object"])
    stands = dict(facts["objectatlocation"])
    if lost := [x for x in things if x not in place or stands.get(x) != locations[place[x]]]:
        raise ValueError(f"PDDL problem: {lost} lie in no receptacle, or not where it stands: use textworld")
    present = {(holder, kind) for holder in furniture.values() for kind in kinds.values()}
    return Game(
        task=task,
        goal=_read_goal(sections[":goal"][1]),
        receptacles=tuple(
            Receptacle(names[x], _bare(furniture[x]), x in one["openable"]) for x in sorted(declared["receptacle"])
        ),
        things=tuple(
            Thing(
                name=names[x],
                kind=_bare(kinds[x]),
                portable=x in one["pickupable"],
                switchable=x in one["toggleable"],
                treatable=frozenset(verb for verb in able if x in able[verb]),
            )
            for x in things
        ),
        start=tuple(names[place[x]] for x in things),
        fits=frozenset((_bare(a), _bare(b)) for a, b in facts["cancontain"] if (a, b) in present),
    )


def parse_pddl(text: str) -> Any:
    """The first s-expression of a text as nested lists of lower-case words; ``;`` starts a comment."""
    stack: list[list[Any]] = [[]]
    for word in re.findall(r"[()]|[^\s()]+", re.sub(r";[^\n]*", "", text.lower())):
        if word == "(":
            stack.append([])
        elif word == ")":
            if len(stack) == 1:
                raise ValueError("PDDL problem: a ) without its (")
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    if len(stack) != 1 or not stack[0] or not isinstance(stack[0][0], list):
        raise ValueError("PDDL problem: brackets do not match, or there are none")
    return stack[0][0]


def _declared(words: list[str]) -> dict[str, list[str]]:
    """``a b - t c - u`` as names by type."""
    declared: dict[str, list[str]] = defaultdict(list)
    names: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-":
            declared[next(rest, "")] += names
            names = []
        else:
            names.append(word)
    return declared


def _read_goal(goal: Any) -> Goal:
    atoms = list(_atoms(goal))
    predicates = {atom[0] for atom in atoms}
    targets = {_bare(atom[2]) for atom in atoms if atom[0] == "receptacletype"}
    kinds = [_bare(atom[2]) for atom in atoms if atom[0] == "objecttype"]
    verbs = [verb for verb, (_, state) in PREDICATES_OF_VERB.items() if state.lower() in predicates]
    allowed = {"objecttype", "receptacletype", "inreceptacle", "=", "toggleable", "istoggled", "holds", "atlocation"}
    allowed |= {"receptacleatlocation", *(word.lower() for words in PREDICATES_OF_VERB.values() for word in words)}
    light = "istoggled" in predicates
    lamps = [kind for kind in kinds if kind == LAMP.lower()] if light else []
    objects = sorted(set(kinds) - set(lamps))
    if predicates - allowed or len(objects) != 1 or len(verbs) > 1 or len(targets) + bool(lamps) != 1:
        raise ValueError(
            f"PDDL goal of {sorted(predicates)} on {kinds} and {sorted(targets)}: none of the six task types"
        )
    return Goal(
        object=objects[0],
        target=lamps[0] if light else targets.pop(),
        verb=verbs[0] if verbs else None,
        two="=" in predicates,
        light=light,
    )


def _atoms(expression: Any) -> Iterator[list[str]]:
    """All leaves of and / not / exists (a variable list is not one)."""
    if expression[0] == "exists":
        yield from _atoms(expression[2])
    elif expression[0] in ("and", "not"):
        for part in expression[1:]:
            yield from _atoms(part)
    else:
        yield expression


def _bare(kind: str) -> str:
    return kind.removesuffix("type")
