"""Games as ALFWorld's own files, written and read: a PDDL problem and the keys of ``traj_data.json``.

Writing is for textworld, which plays the same game as an oracle (``textworld_files``). Reading gives the engine a
problem written by somebody else. Knows ALFWorld's predicates and no play.

Read are problems in which every receptacle has a location of its own and nothing is sliced or contained in another
thing; everything else is an error, never a game that plays differently.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from envs.alfworld.catalogue import FITS, LAMP, LIGHT, OPENABLE, TREATABLE, TREATMENTS, TWO
from envs.alfworld.game import Game, GameSpec, Goal, Receptacle, Thing, shown_names

_FLAGS = {"clean": ("cleanable", "isClean"), "heat": ("heatable", "isHot"), "cool": ("coolable", "isCool")}
_NAMED_IN_DOMAIN = ({"SinkBasin", "Microwave", "Fridge"}, {"Knife", "ButterKnife"})
"""Furniture and thing classes that the domain's actions name: every problem must declare them."""


def write_problem(spec: GameSpec) -> str:
    """The text of ``initial_state.pddl``."""
    furniture = sorted({kind for kind, _ in spec.receptacles})
    kinds = sorted({kind for kind, _, _ in spec.things})
    location = {identity: f"loc_bar_{i:02d}" for i, (_, identity) in enumerate(spec.receptacles, 1)}
    facts = ["(= (total-cost) 0)", "(atLocation agent1 loc_bar_00)"]
    for kind, identity in spec.receptacles:
        facts += [f"(receptacleType {identity} {kind}Type)", f"(receptacleAtLocation {identity} {location[identity]})"]
        facts += [f"(openable {identity})"] if kind in OPENABLE else []
    for kind, identity, where in spec.things:
        facts += [f"(objectType {identity} {kind}Type)", f"(inReceptacle {identity} {where})"]
        facts += [f"(objectAtLocation {identity} {location[where]})"]
        facts += [f"({'toggleable' if kind == LAMP else 'pickupable'} {identity})"]
        facts += [f"({_FLAGS[verb][0]} {identity})" for verb in _FLAGS if kind in TREATABLE[verb]]
    facts += [f"(canContain {holder}Type {kind}Type)" for holder in furniture for kind in kinds if kind in FITS[holder]]
    declared = [
        (["agent1"], "agent"),
        (["loc_bar_00", *location.values()], "location"),
        ([identity for _, identity in spec.receptacles], "receptacle"),
        ([identity for _, identity, _ in spec.things], "object"),
        ([f"{kind}Type" for kind in sorted(_NAMED_IN_DOMAIN[0].union(furniture))], "rtype"),
        ([f"{kind}Type" for kind in sorted(_NAMED_IN_DOMAIN[1].union(kinds))], "otype"),
    ]
    lines = ["(define (problem generated)", "(:domain alfred)", "(:objects"]
    lines += [f"  {' '.join(names)} - {kind}" for names, kind in declared if names]
    lines += [")", "(:init", *(f"  {fact}" for fact in facts), ")"]
    lines += [f"(:goal (and\n  {_goal(spec)}\n))", "(:metric minimize (total-cost))", ")", ""]
    return "\n".join(lines)


def _goal(spec: GameSpec) -> str:
    if spec.task_type == LIGHT:
        return (
            "(exists (?t - object ?r - receptacle ?a - agent ?l - location) (and "
            f"(objectType ?t {LAMP}Type) (toggleable ?t) (isToggled ?t) (inReceptacle ?t ?r) "
            "(receptacleAtLocation ?r ?l) (atLocation ?a ?l)))\n"
            f"  (exists (?o - object ?a - agent) (and (objectType ?o {spec.object}Type) (holds ?a ?o)))"
        )

    def placed(thing: str) -> str:
        return f"(objectType {thing} {spec.object}Type) (receptacleType ?r {spec.target}Type) (inReceptacle {thing} ?r)"

    if spec.task_type == TWO:
        other = f"(exists (?q - object) (and (not (= ?p ?q)) {placed('?q')}))"
        return f"(exists (?r - receptacle) (exists (?p - object) (and {placed('?p')} {other})))"
    treated = ""
    if treatment := TREATMENTS.get(spec.task_type):
        treated = " ".join(f"({predicate} ?o)" for predicate in _FLAGS[treatment.verb]) + " "
    return f"(exists (?r - receptacle) (exists (?o - object) (and {treated}{placed('?o')})))"


def trajectory_data(spec: GameSpec) -> dict[str, Any]:
    """The keys of ``traj_data.json`` that ALFWorld's own tools read."""
    light = spec.task_type == LIGHT
    return {
        "task_type": spec.task_type,
        "pddl_params": {
            "object_target": spec.object,
            "parent_target": "" if light else spec.target,
            "toggle_target": spec.target if light else "",
            "mrecep_target": "",
            "object_sliced": False,
        },
    }


def read_problem(problem: str, task: str) -> Game:
    """The game of a PDDL problem; ``task`` is the goal in words, which a problem does not hold.

    Raises ValueError that names what was found if the problem is not one that the engine plays as textworld would.
    """
    sections = {str(part[0]): part for part in _expression(problem)[1:] if isinstance(part, list)}
    if missing := {":objects", ":init", ":goal"} - set(sections):
        raise ValueError(f"PDDL problem without {sorted(missing)}")
    declared = _declared(sections[":objects"][1:])
    facts: dict[str, list[Any]] = defaultdict(list)
    for fact in sections[":init"][1:]:
        if fact[0] != "=":
            facts[fact[0]].append(tuple(fact[1:]))
    if odd := sorted(set(facts) & _NOT_PLAYED):
        raise ValueError(f"PDDL problem with {odd}: the engine does not play this, use textworld")
    locations = dict(facts["receptacleatlocation"])
    if len(set(locations.values())) < len(locations) or set(locations.values()) & {x for _, x in facts["atlocation"]}:
        raise ValueError("PDDL problem with several receptacles at one location, or one at the start: use textworld")
    names = shown_names([*declared["receptacle"], *declared["object"]])
    furniture, kinds = dict(facts["receptacletype"]), dict(facts["objecttype"])
    place = dict(facts["inreceptacle"])
    one = {predicate: {row[0] for row in facts[predicate]} for predicate in ("openable", "pickupable", "toggleable")}
    able = {verb: {row[0] for row in facts[predicate]} for verb, (predicate, _) in _FLAGS.items()}
    things = sorted(declared["object"])
    if lost := [thing for thing in things if thing not in place]:
        raise ValueError(f"PDDL problem: {lost} lie in no receptacle")
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


_NOT_PLAYED = frozenset(
    {
        "isreceptacleobject",
        "inreceptacleobject",
        "sliceable",
        "issliced",
        "opened",
        "holds",
        "isclean",
        "ishot",
        "iscool",
    }
    | {"istoggled", "ison"}
)


def _expression(text: str) -> Any:
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
            declared[next(rest)] += names
            names = []
        else:
            names.append(word)
    return declared


def _read_goal(goal: Any) -> Goal:
    atoms = list(_atoms(goal))
    predicates = {atom[0] for atom in atoms}
    targets = {_bare(atom[2]) for atom in atoms if atom[0] == "receptacletype"}
    kinds = [_bare(atom[2]) for atom in atoms if atom[0] == "objecttype"]
    verbs = [verb for verb, (_, state) in _FLAGS.items() if state.lower() in predicates]
    allowed = {"objecttype", "receptacletype", "inreceptacle", "=", "toggleable", "istoggled", "holds", "atlocation"}
    allowed |= {"receptacleatlocation", *(word.lower() for words in _FLAGS.values() for word in words)}
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


def _atoms(expression: Any) -> Any:
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
