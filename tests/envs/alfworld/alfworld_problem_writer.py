"""Writes a generated game as a PDDL problem, for textworld to play it as an oracle. Knows no play."""

from __future__ import annotations

from envs.alfworld.games.catalogue import FITS, LAMP, LIGHT, OPENABLE, TREATABLE, TREATMENTS, TWO
from envs.alfworld.games.spec import GameSpec

PREDICATES_OF_VERB = {"clean": ("cleanable", "isClean"), "heat": ("heatable", "isHot"), "cool": ("coolable", "isCool")}
"""Verb -> the predicates that it can be done and that it was done."""
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
        facts += [
            f"({PREDICATES_OF_VERB[verb][0]} {identity})" for verb in PREDICATES_OF_VERB if kind in TREATABLE[verb]
        ]
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
        treated = " ".join(f"({predicate} ?o)" for predicate in PREDICATES_OF_VERB[treatment.verb]) + " "
    return f"(exists (?r - receptacle) (exists (?o - object) (and {treated}{placed('?o')})))"
