"""A player's knowledge of a game, inferred from its texts: the task, the furniture, and everything observed so far.

Parses the opening and every (command, answer) pair. It works for any player: an expert, a model, or both in turns."""

import re
from dataclasses import dataclass, field
from typing import Self

from envs.alfworld.games.catalogue import TASK_LINES
from envs.alfworld.games.game import Goal, goal_of
from envs.alfworld.sentences import NOTHING_HAPPENS

_ROOM = re.compile(r"You are in the middle of a room\. Looking quickly around you, you see (.*?)\.(?:\n|$)")
_TASK = re.compile(r"Your task is to: (.*?)\.?\s*(?:\n|$)")
_NAMED = re.compile(r"\ba ([a-z]+ \d+)")
_OPPOSITE = {"heat": "cool", "cool": "heat"}
_GOALS = [
    (task_type, re.compile(line.format(object="(?P<object>[a-z]+)", target="(?P<target>[a-z]+)")))
    for task_type, lines in TASK_LINES.items()
    for line in lines
]


def read_goal(task: str) -> Goal:
    """Parse a task line's text (without "Your task is to:") into a goal. Raises ValueError if no template fits."""
    for task_type, pattern in _GOALS:
        if match := pattern.fullmatch(task):
            return goal_of(task_type, match["object"], match["target"])
    raise ValueError(f"task {task!r} follows none of the known wordings: {[x for v in TASK_LINES.values() for x in v]}")


def kind_of(name: str) -> str:
    """The class in a numbered name: "mug" for "mug 2"."""
    return name.rpartition(" ")[0]


@dataclass
class Knowledge:
    """A player's knowledge of the room: where the player is (``here``), what is in hand (``held``), where things were
    seen, what was explored. All names are those in the game's texts."""

    goal: Goal
    receptacles: tuple[str, ...]
    """All furniture, in the order of the room line."""
    here: str | None = None
    held: str | None = None
    seen: dict[str, str] = field(default_factory=dict)
    """Thing -> receptacle where it was last observed or put, in order of first observation; not for things in hand."""
    explored: set[str] = field(default_factory=set)
    """Receptacles whose contents have been observed."""
    shut: set[str] = field(default_factory=set)
    """Receptacles known to be closed."""
    treated: dict[str, set[str]] = field(default_factory=dict)
    """Thing -> verbs done to it that still hold: clean stays, heat and cool undo each other."""
    came_from: dict[str, str] = field(default_factory=dict)
    """Thing -> receptacle it was last taken from."""

    @classmethod
    def from_opening(cls, opening: str, goal: Goal | None = None) -> Self:
        """Build a player's first knowledge from the opening's task line and room line, in any order. Raises ValueError
        if one is missing. Pass ``goal`` if the task line follows none of ALFWorld's templates."""
        task, room = _TASK.search(opening), _ROOM.search(opening)
        if not task or not room:
            raise ValueError(f"opening without a {'task' if not task else 'room'} line: {opening[:200]!r}")
        return cls(goal=goal or read_goal(task[1]), receptacles=tuple(_NAMED.findall(room[1])))

    def observe(self, command: str, answer: str) -> None:
        """Update from a command in the new grammar and the game's answer. A refused ``go to X`` means that the player
        is at X already: in the real games furniture may share a location."""
        command = command.strip()
        if answer == NOTHING_HAPPENS:
            if (place := command.removeprefix("go to ")) in self.receptacles:
                self.here = place
            return
        verb, _, rest = command.partition(" ")
        if verb == "go":
            self.here = rest.removeprefix("to ")
        elif verb == "close":
            self.shut.add(rest)
        elif verb == "take":
            thing, _, receptacle = rest.partition(" from ")
            self.seen.pop(thing, None)
            self.held, self.came_from[thing] = thing, receptacle
        elif verb == "move":
            thing, _, receptacle = rest.partition(" to ")
            self.held, self.seen[thing] = None, receptacle
        elif verb in ("clean", "heat", "cool"):
            thing = rest.partition(" with ")[0]
            verbs = self.treated.setdefault(thing, set())
            verbs.add(verb)
            verbs.discard(_OPPOSITE.get(verb, ""))
        if self.here is not None and (verb in ("go", "open") or command == f"examine {self.here}"):
            self._look_at(self.here, answer)

    def _look_at(self, receptacle: str, answer: str) -> None:
        if f"The {receptacle} is closed." in answer:
            self.shut.add(receptacle)
            return
        self.shut.discard(receptacle)
        self.explored.add(receptacle)
        listed = answer.partition("you see ")[2]
        for thing in _NAMED.findall(listed):
            self.seen[thing] = receptacle

    def of_class(self, kind: str) -> list[str]:
        """Observed things of a class ("mug") that are not in hand, in the order of first observation; maybe none."""
        return [thing for thing in self.seen if kind_of(thing) == kind]

    def of_kind(self, kind: str) -> list[str]:
        """Names of the furniture of a class ("shelf"), in the order of the room line; possibly none."""
        return [receptacle for receptacle in self.receptacles if kind_of(receptacle) == kind]
