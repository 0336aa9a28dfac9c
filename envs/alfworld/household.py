"""The real ALFWorld games, played from their files: the old grammar (``put X in/on Y``), shared locations included.

ALFWorld's domain as it stands in the files (``alfred.pddl`` and ``alfred.twl2`` of alfworld 0.3): facts as sets, and
the texts of the eight kinds of command that MINT's tools can send. A thing may lie in several receptacles at once and
several receptacles may share a location, as in the files. What a command cannot do answers "Nothing happens.". Knows no
limit of commands and no tool; ``examine``, ``inventory`` and ``slice`` are not there, because no tool sends them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.alfworld.games.game import shown_names
from envs.alfworld.games.pddl_reader import parse_pddl
from envs.alfworld.texts import NOTHING_HAPPENS, closed, inside, listing, opening, room_line, surface

_TWO_NAMES = (
    ("put", re.compile(r"put (.+) in/on (.+)")),
    ("take", re.compile(r"take (.+) from (.+)")),
    ("clean", re.compile(r"clean (.+) with (.+)")),
    ("heat", re.compile(r"heat (.+) with (.+)")),
    ("cool", re.compile(r"cool (.+) with (.+)")),
)
_ONE_NAME = ("go to ", "open ", "close ", "use ")
_ABLE = {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}
_STATE = {"clean": "isclean", "heat": "ishot", "cool": "iscool"}
_ENDS = {"heat": "iscool", "cool": "ishot"}


@dataclass(frozen=True)
class HouseholdGame:
    """A game file, parsed: facts by predicate (arguments without the agent), names by id, goal and task line."""

    task: str
    facts: dict[str, frozenset[tuple[str, ...]]]
    names: dict[str, str]
    goal: Any
    start: str
    tools: dict[str, frozenset[str]]
    """clean, heat, cool -> receptacle types that do it."""


def load_game(path: Path) -> HouseholdGame:
    """Reads a ``game.tw-pddl``. Raises ValueError that names the file and what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return parse_game(content["pddl_problem"], content["pddl_domain"], content["grammar"])
    except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
        raise ValueError(f"{path}: not a game of ALFWorld: {type(error).__name__}: {error}") from error


def parse_game(problem: str, domain: str, grammar: str) -> HouseholdGame:
    """A game from the three texts of its file."""
    task = re.search(r"Your task is to: (.*?)\.?\"", grammar)
    if task is None:
        raise ValueError("grammar without the line 'Your task is to: ...'")
    sections = {str(part[0]): part for part in parse_pddl(problem)[1:] if isinstance(part, list)}
    facts: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for fact in sections[":init"][1:]:
        if fact[0] != "=":
            facts[fact[0]].add(tuple(fact[1:]))
    (start,) = {location for _, location in facts["atlocation"]}
    entities = {x for predicate in ("objecttype", "receptacletype") for x, _ in facts[predicate]}
    locations = {x for predicate in ("receptacleatlocation", "objectatlocation") for _, x in facts[predicate]}
    numbered = [x for x in (*entities, *_declared(sections[":objects"][1:], "location"), *locations) if "_bar_" in x]
    return HouseholdGame(
        task=task[1],
        facts={predicate: frozenset(rows) for predicate, rows in facts.items()},
        names=shown_names(sorted(set(numbered) | {start})),
        goal=sections[":goal"][1],
        start=start,
        tools=_tools(domain),
    )


def _declared(words: list[str], kind: str) -> list[str]:
    """The names declared ``- kind`` in a list ``a b - t c - u``."""
    found: list[str] = []
    names: list[str] = []
    rest = iter(words)
    for word in rest:
        if word != "-":
            names.append(word)
            continue
        found += names if next(rest) == kind else []
        names = []
    return found


def _tools(domain: str) -> dict[str, frozenset[str]]:
    """Which receptacle types clean, heat and cool: two of the games have an older rule for sinks."""
    actions = {part[1]: part for part in parse_pddl(domain)[1:] if isinstance(part, list) and part[0] == ":action"}
    tools = {}
    for verb in _ABLE:
        precondition = actions[f"{verb}object"][actions[f"{verb}object"].index(":precondition") + 1]
        tools[verb] = frozenset(atom[2] for atom in _atoms(precondition) if atom[0] == "receptacletype")
    return tools


def _atoms(expression: Any) -> list[list[str]]:
    if expression[0] in ("and", "or", "not"):
        return [atom for part in expression[1:] for atom in _atoms(part)]
    return [expression]


class Household:
    """One play of a game. ``opening`` is the first text; ``won`` whether the goal holds now."""

    def __init__(self, game: HouseholdGame) -> None:
        self.game = game
        facts = game.facts
        self._at = game.start
        self._held: str | None = None
        self._location = _pairs(facts["receptacleatlocation"])
        self._receptacles = {game.names[x]: x for x, _ in facts["receptacletype"]}
        self._things = {game.names[x]: x for x, _ in facts["objecttype"]}
        self._kind = _pairs(facts["receptacletype"]) | _pairs(facts["objecttype"])
        self._in: set[tuple[str, str]] = {(x, r) for x, r in facts["inreceptacle"]}
        self._lies = _pairs(facts.get("objectatlocation", frozenset()))
        self._taken_out: set[tuple[str, str]] = set()
        """What the game knows not to be in a receptacle: it lay there once, and was taken."""
        self._unary = {
            predicate: {row[0] for row in facts.get(predicate, ())}
            for predicate in (
                *("openable", "pickupable", "toggleable", "cleanable", "heatable", "coolable"),
                *("opened", "istoggled", "isclean", "ishot", "iscool"),
            )
        }
        self._fits = facts["cancontain"]
        self.opening = opening([game.names[x] for x in sorted(x for x, _ in facts["receptacletype"])], game.task)
        self.won = self._goal_reached()

    def step(self, command: str) -> str:
        """The game's answer to a command; what is not possible changes nothing."""
        answer = self._carry_out(command.strip())
        if answer is None:
            return NOTHING_HAPPENS
        self.won = self._goal_reached()
        return answer

    def _carry_out(self, command: str) -> str | None:
        if command == "look":
            return self._look()
        for prefix in _ONE_NAME:
            if command.startswith(prefix):
                return self._with_one(prefix, command[len(prefix) :])
        for verb, pattern in _TWO_NAMES:
            if found := pattern.fullmatch(command):
                thing, receptacle = self._things.get(found[1]), self._receptacles.get(found[2])
                if thing is None or receptacle is None or self._location.get(receptacle) != self._at:
                    return None
                return self._with_two(verb, thing, receptacle)
        return None

    def _with_one(self, prefix: str, name: str) -> str | None:
        if prefix == "use ":
            return self._use(name)
        receptacle = self._receptacles.get(name)
        where = self._location.get(receptacle or "")
        if receptacle is None or where is None:
            return None
        if prefix == "go to ":
            if where == self._at:
                return None
            self._at = where
            return f"You arrive at {self.game.names[where]}. {self._describe(receptacle)}"
        if where != self._at or receptacle not in self._unary["openable"]:
            return None
        if prefix == "open ":
            if receptacle in self._unary["opened"]:
                return None
            self._unary["opened"].add(receptacle)
            return f"You open the {name}. {self._describe(receptacle)}"
        if receptacle not in self._unary["opened"]:
            return None
        self._unary["opened"].remove(receptacle)
        return f"You close the {name}."

    def _with_two(self, verb: str, thing: str, receptacle: str) -> str | None:
        """Both are known, and the receptacle is where one stands."""
        names = self.game.names
        if verb == "take":
            free = self._held is None and thing in self._unary["pickupable"]
            if not free or (thing, receptacle) not in self._in or not self._accessible(receptacle):
                return None
            self._in.remove((thing, receptacle))
            self._taken_out.add((thing, receptacle))
            self._lies.pop(thing, None)
            self._held = thing
            return f"You pick up the {names[thing]} from the {names[receptacle]}."
        if thing != self._held:
            return None
        if verb == "put":
            if not self._accessible(receptacle) or (self._kind[receptacle], self._kind[thing]) not in self._fits:
                return None
            self._in.add((thing, receptacle))
            self._taken_out.discard((thing, receptacle))
            self._lies[thing] = self._at
            self._held = None
            return f"You put the {names[thing]} in/on the {names[receptacle]}."
        if thing not in self._unary[_ABLE[verb]] or self._kind[receptacle] not in self.game.tools[verb]:
            return None
        self._unary[_STATE[verb]].add(thing)
        self._unary[_ENDS.get(verb, "opened")].discard(thing)
        return f"You {verb} the {names[thing]} using the {names[receptacle]}."

    def _use(self, name: str) -> str | None:
        thing = self._things.get(name)
        if thing is None or thing not in self._unary["toggleable"]:
            return None
        if not any(x == thing and self._location.get(r) == self._at for x, r in self._in):
            return None
        self._unary["istoggled"].add(thing)
        return f"You turn on the {name}."

    def _accessible(self, receptacle: str) -> bool:
        return receptacle not in self._unary["openable"] or receptacle in self._unary["opened"]

    def _describe(self, receptacle: str) -> str:
        name = self.game.names[receptacle]
        if not self._accessible(receptacle):
            return closed(name)
        things = [self.game.names[x] for x in sorted(x for x, r in self._in if r == receptacle)]
        return inside(name, things) if receptacle in self._unary["openable"] else surface(name, things)

    def _look(self) -> str:
        here = sorted(r for r, where in self._location.items() if where == self._at)
        if not here:
            return room_line([])
        *others, last = [self.game.names[r] for r in here]
        facing = f"{', '.join(others)}, and {last}" if others else last
        # Of things at this place, those known not to be in one of its receptacles: moved from one of them to another.
        moved = sorted({x for x, r in self._taken_out if r in here and self._lies.get(x) == self._at})
        return f"You are facing the {facing}. Next to it, you see {listing([self.game.names[x] for x in moved])}."

    def _goal_reached(self) -> bool:
        return self._holds(self.game.goal, {})

    def _holds(self, formula: Any, bound: dict[str, str]) -> bool:
        """Whether a goal holds with these variables; ``exists`` tries every entity of the right kind."""
        match formula:
            case ["and", *parts]:
                return all(self._holds(part, bound) for part in parts)
            case ["not", part]:
                return not self._holds(part, bound)
            case ["exists", variables, part]:
                return self._exists(_typed(variables), part, bound)
            case ["=", a, b]:
                return bound.get(a, a) == bound.get(b, b)
            case [predicate, *arguments]:
                return self._fact(predicate, [bound.get(x, x) for x in arguments])
        raise ValueError(f"goal {formula!r}: expected and, not, exists, = or a fact")

    def _exists(self, variables: list[tuple[str, str]], part: Any, bound: dict[str, str]) -> bool:
        if not variables:
            return self._holds(part, bound)
        (name, kind), *rest = variables
        return any(self._exists(rest, part, {**bound, name: x}) for x in self._candidates(name, kind, part))

    def _candidates(self, name: str, kind: str, part: Any) -> list[str]:
        """Entities a variable may stand for: those of the type that the formula asks of it, if it asks one."""
        if kind == "agent":
            return ["agent1"]
        if kind == "location":
            return [self._at]
        pool = self._things if kind == "object" else self._receptacles
        asked = {atom[2] for atom in _asked(part) if atom[0] in ("objecttype", "receptacletype") and atom[1] == name}
        return [x for x in pool.values() if not asked or self._kind[x] in asked]

    def _fact(self, predicate: str, arguments: list[str]) -> bool:
        match predicate, arguments:
            case (("objecttype" | "receptacletype"), [x, kind]):
                return self._kind[x] == kind
            case "inreceptacle", [x, r]:
                return (x, r) in self._in
            case "holds", [_, x]:
                return x == self._held
            case "atlocation", [_, where]:
                return where == self._at
            case "receptacleatlocation", [r, where]:
                return self._location.get(r) == where
            case _, [x] if predicate in self._unary:
                return x in self._unary[predicate]
        raise ValueError(f"goal asks for {predicate} of {arguments}: not known here")


def _pairs(rows: frozenset[tuple[str, ...]]) -> dict[str, str]:
    return {left: right for left, right in rows}  # noqa: C416 - rows of two, which the type does not say


def _typed(words: list[str]) -> list[tuple[str, str]]:
    """``?a - t ?b ?c - u`` as (variable, type) pairs."""
    pairs: list[tuple[str, str]] = []
    names: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-":
            kind = next(rest)
            pairs += [(name, kind) for name in names]
            names = []
        else:
            names.append(word)
    return pairs


def _asked(formula: Any) -> list[list[str]]:
    """The facts that a conjunction asks for, those inside a further ``exists`` included."""
    if formula[0] == "and":
        return [atom for part in formula[1:] for atom in _asked(part)]
    if formula[0] == "exists":
        return _asked(formula[2])
    return [formula] if formula[0] not in ("not", "=") else []
