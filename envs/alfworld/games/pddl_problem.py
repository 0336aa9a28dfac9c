"""Parses PDDL problems in ALFWorld's vocabulary, of real or generated games, into ``Game``.

Several receptacles may share a location and a thing may lie in several of them, as in the real games. An
unsupported predicate raises ValueError that names it, because the game would play differently from textworld's."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envs.alfworld.games.catalogue import TOOLS
from envs.alfworld.games.game import Game, Goal, GrammarName, Receptacle, Start, Thing, shown_names

_ABLE = {"cleanable": "clean", "heatable": "heat", "coolable": "cool"}
"""Predicate -> the verb that works on a thing with that predicate."""
_STATES = {"isclean": "clean", "ishot": "hot", "iscool": "cool", "istoggled": "lit", "issliced": "sliced"}
_TREATED = {"isclean": "clean", "ishot": "heat", "iscool": "cool"}
_OF_A_THING = ("pickupable", "toggleable", "sliceable", "isreceptacleobject", *_ABLE, *_STATES)
_OF_A_RECEPTACLE = ("openable", "opened")
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_A_THING, ("thing",)),
    **dict.fromkeys(_OF_A_RECEPTACLE, ("receptacle",)),
    "inreceptacle": ("thing", "receptacle"),
    "inreceptacleobject": ("thing", "thing"),
    "objectatlocation": ("thing",),
    "receptacleatlocation": ("receptacle",),
}
"""Predicate -> required kinds (thing or receptacle) of its first arguments."""
_WITHOUT_EFFECT = (
    *("checked", "examined", "full", "holdsanyreceptacleobject", "ison", "isreceptacleobjectfull", "moveable"),
    "wasinreceptacle",
)
"""Predicates that are ignored: no action of ALFWorld's domain and no sentence uses them."""
_NEEDED = frozenset({"atlocation", "receptacletype", "receptacleatlocation", "objecttype"})
_Facts = dict[str, set[tuple[str, ...]]]


def read_problem(
    problem: str, task: str, *, tools: frozenset[tuple[str, str]] = TOOLS, grammar: GrammarName = "new"
) -> Game:
    """Parse a PDDL problem into a game. Raises ValueError that names the fault if textworld would play it differently.
    ``task``: the goal in words; ``tools``: (verb, furniture class) pairs; ``grammar``: wording of commands."""
    try:
        return _read(parse_pddl(problem), task, tools, grammar)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"not a PDDL problem of ALFWorld: {type(error).__name__}: {error}") from error


def _read(expression: Any, task: str, tools: frozenset[tuple[str, str]], grammar: GrammarName) -> Game:
    sections = {str(part[0]): part for part in expression[1:] if isinstance(part, list)}
    if missing := {":objects", ":init", ":goal"} - set(sections):
        raise ValueError(f"PDDL problem without {sorted(missing)}")
    facts: _Facts = defaultdict(set)
    for fact in sections[":init"][1:]:
        if fact[0] != "=":
            facts[fact[0]].add(tuple(fact[1:]))
    _check(facts)
    furniture, kinds = _by_id(facts["receptacletype"]), _by_id(facts["objecttype"])
    location, ((_, start),) = _by_id(facts["receptacleatlocation"]), facts["atlocation"]
    places = {start, *location.values(), *(where for _, where in facts["objectatlocation"])}
    places.update(x for x in declared(sections[":objects"][1:])["location"] if "_bar_" in x)
    names = shown_names([*furniture, *kinds, *places])
    one = {predicate: {row[0] for row in facts[predicate]} for predicate in (*_OF_A_THING, *_OF_A_RECEPTACLE)}
    present = {(holder, kind) for holder in furniture.values() for kind in kinds.values()}

    def shown(pairs: set[tuple[str, ...]]) -> tuple[tuple[str, str], ...]:
        return tuple((names[x], names[y]) for x, y in sorted(pairs))

    return Game(
        task=task,
        goal=read_goal(sections[":goal"][1]),
        receptacles=tuple(
            Receptacle(names[x], _bare(kind), x in one["openable"], names[location[x]]) for x, kind in furniture.items()
        ),
        things=tuple(
            Thing(
                name=names[x],
                kind=_bare(kind),
                portable=x in one["pickupable"],
                switchable=x in one["toggleable"],
                treatable=frozenset(verb for predicate, verb in _ABLE.items() if x in one[predicate]),
                sliceable=x in one["sliceable"],
                holding=tuple(names[inner] for inner, outer in sorted(facts["inreceptacleobject"]) if outer == x)
                if x in one["isreceptacleobject"]
                else None,
            )
            for x, kind in kinds.items()
        ),
        start=Start(
            location=names[start],
            inside=shown(facts["inreceptacle"]),
            lying=shown(facts["objectatlocation"]),
            opened=tuple(names[x] for x in sorted(one["opened"])),
            states=tuple((names[x], state) for p, state in _STATES.items() for x in sorted(one[p])),
        ),
        fits=frozenset((_bare(a), _bare(b)) for a, b in facts["cancontain"] if (a, b) in present),
        tools=tools,
        grammar=grammar,
    )


def _by_id(pairs: set[tuple[str, ...]]) -> dict[str, str]:
    """(id, value) pairs as a dict sorted by id, the order in which the game lists everything."""
    return {left: right for left, right in sorted(pairs)}  # noqa: C416 - rows of two, which the type does not say


def _check(facts: _Facts) -> None:
    """Raise ValueError on unsupported or missing predicates, names without a type, or missing or doubled locations."""
    if odd := sorted(set(facts) - _NEEDED.union(_ARGUMENTS, _WITHOUT_EFFECT, {"cancontain"})):
        raise ValueError(f"PDDL problem with {odd}: not played here, use textworld")
    if missing := sorted(_NEEDED - set(facts)):
        raise ValueError(f"PDDL problem without {missing}")
    furniture, things = ({row[0] for row in facts[name]} for name in ("receptacletype", "objecttype"))
    known = {"receptacle": furniture, "thing": things}
    lost = {
        f"{predicate} of {name}"
        for predicate, kinds in _ARGUMENTS.items()
        for row in facts[predicate]
        for name, kind in zip(row, kinds, strict=False)
        if name not in known[kind]
    }
    if lost:
        raise ValueError(f"PDDL problem: {', '.join(sorted(lost)[:5])}: without a type")
    located = [receptacle for receptacle, _ in facts["receptacleatlocation"]]
    if len(located) > len(set(located)) or set(located) != furniture or len(facts["atlocation"]) != 1:
        raise ValueError("PDDL problem: every receptacle and the agent must be at one location")


def read_goal(formula: Any) -> Goal:
    """Parse a PDDL goal formula. Raises ValueError if it fits none of the six task types."""
    asked = list(atoms(formula))
    predicates = {atom[0] for atom in asked}
    kinds = {variable: _bare(kind) for predicate, variable, kind in _typed(asked) if predicate == "objecttype"}
    targets = {_bare(kind) for predicate, _, kind in _typed(asked) if predicate == "receptacletype"}
    verbs = [verb for predicate, verb in _TREATED.items() if predicate in predicates]
    lit = {atom[1] for atom in asked if atom[0] == "istoggled"}
    lamps = {kinds.get(variable, "") for variable in lit}
    objects = {kind for variable, kind in kinds.items() if variable not in lit}
    allowed = {"objecttype", "receptacletype", "inreceptacle", "="} if not lit else {"objecttype", "inreceptacle"}
    if lit:
        allowed |= {"toggleable", "istoggled", "holds", "atlocation", "receptacleatlocation"}
    allowed |= {predicate for predicate, verb in (*_ABLE.items(), *_TREATED.items()) if verb in verbs}
    if predicates - allowed or len(objects) != 1 or len(verbs) > 1 or len(targets) + len(lamps) != 1:
        raise ValueError(
            f"PDDL goal of {sorted(predicates)} on {sorted(kinds.values())} and {sorted(targets)}: "
            "none of the six task types"
        )
    return Goal(
        object=objects.pop(),
        target=(lamps or targets).pop(),
        verb=verbs[0] if verbs else None,
        two="=" in predicates,
        light=bool(lit),
    )


def _typed(asked: list[list[str]]) -> list[list[str]]:
    return [atom for atom in asked if atom[0] in ("objecttype", "receptacletype")]


def _bare(kind: str) -> str:
    return kind.removesuffix("type")


_COMMENTS = re.compile(r";[^\n]*")


def parse_pddl(text: str) -> Any:
    """Parse the first s-expression into nested lists of lower-case words. Raises ValueError for unbalanced brackets."""
    stack: list[list[Any]] = [[]]
    for word in _COMMENTS.sub("", text.lower()).replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            stack.append([])
        elif word == ")":
            if len(stack) == 1:
                raise ValueError("PDDL: a ) without its (")
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    if len(stack) != 1 or not stack[0] or not isinstance(stack[0][0], list):
        raise ValueError("PDDL: brackets do not match, or there are none")
    return stack[0][0]


def declared(words: Sequence[str]) -> dict[str, list[str]]:
    """Parse a typed PDDL list, ``a b - t c - u``, into type -> names: ``{t: [a, b], u: [c]}``."""
    by_type: dict[str, list[str]] = defaultdict(list)
    names: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-":
            by_type[next(rest, "")] += names
            names = []
        else:
            names.append(word)
    return by_type


def atoms(expression: Any) -> Iterator[list[str]]:
    """Yield the atoms (predicate and arguments) of a parsed formula of and, or, not and exists, from left to right."""
    if not expression:
        return
    if expression[0] == "exists":
        yield from atoms(expression[2])
    elif expression[0] in ("and", "or", "not"):
        for part in expression[1:]:
            yield from atoms(part)
    else:
        yield expression
