"""A scripted expert player that uses only the game's texts, searches the furniture in order and wastes no command.

Its next command depends only on the facts observed so far, so it can take over from any player in the middle of a game.
It searches in the order of the room line and writes the new grammar."""

from envs.alfworld.games.catalogue import LAMP, TOOL_OF_VERB
from envs.alfworld.games.game import Goal
from envs.alfworld.knowledge import Knowledge, kind_of

NOTHING_LEFT = "look"
"""The expert's command when nothing remains to search, or the room lacks the furniture that the goal needs."""


class Expert:
    """Scripted player: ``observe(command, answer)`` records a turn of any player, ``advice()`` returns the next
    command. Pass ``goal`` if the task line follows no template of ALFWorld. Raises ValueError if the opening has no
    task or room line, or, without ``goal``, an unknown wording."""

    def __init__(self, opening: str, goal: Goal | None = None) -> None:
        self.knowledge = Knowledge.from_opening(opening, goal)

    def observe(self, command: str, answer: str) -> None:
        """Record one turn: a command of any player and the game's answer. A command that the game refused ("Nothing
        happens.") changes at most where the player is. The command must be in the new grammar (``move cup 2 to shelf
        1``); ``grammar.reworded`` translates others."""
        self.knowledge.observe(command, answer)

    def advice(self) -> str:
        """The expert's next command, in the new grammar; ``look`` if it can do nothing more for the goal."""
        known, goal = self.knowledge, self.knowledge.goal
        if known.held is not None and kind_of(known.held) != goal.object:
            return self._put_back(known.held)
        if kind := self._wanted():
            thing = self._known(kind)
            return self._search() if thing is None else self._use_up(thing)
        assert known.held is not None
        if goal.verb and goal.verb not in known.treated.get(known.held, ()):
            tools = known.of_kind(TOOL_OF_VERB[goal.verb].lower())
            return self._at(tools[0], f"{goal.verb} {known.held} with {tools[0]}") if tools else NOTHING_LEFT
        targets = known.of_kind(goal.target)
        return self._at_open(targets[0], f"move {known.held} to {targets[0]}") if targets else NOTHING_LEFT

    def thought(self) -> str | None:
        """The class of thing that the goal needs now and whether one was observed: ``find: mug? no``, or with its place
        ``find: mug 2, shelf 1``. None if no thing is needed now, or the furniture here is known to be closed."""
        known, kind = self.knowledge, self._wanted()
        if kind is None or known.here in known.shut:
            return None
        thing = self._known(kind)
        return f"find: {kind}? no" if thing is None else f"find: {thing}, {known.seen[thing]}"

    def _wanted(self) -> str | None:
        """Class of thing needed now: the goal's object, or the lamp once that object is in hand; None if neither."""
        known, goal = self.knowledge, self.knowledge.goal
        if known.held is None:
            return goal.object
        return LAMP.lower() if goal.light and kind_of(known.held) == goal.object else None

    def _known(self, kind: str) -> str | None:
        """The first observed thing of a class, not in hand; in a two-object goal, not one at the target either."""
        known, goal = self.knowledge, self.knowledge.goal
        placed = set(known.of_kind(goal.target)[:1]) if goal.two else set()
        return next((thing for thing in known.of_class(kind) if known.seen[thing] not in placed), None)

    def _use_up(self, thing: str) -> str:
        """The next command for an observed thing: take it with free hands, else switch it on (then it is the lamp)."""
        place = self.knowledge.seen[thing]
        if self.knowledge.held is None:
            return self._at_open(place, f"take {thing} from {place}")
        return self._at(place, f"use {thing}")

    def _search(self) -> str:
        known = self.knowledge
        for receptacle in known.receptacles:
            if receptacle not in known.explored:
                return self._at_open(receptacle, f"examine {receptacle}")
        return NOTHING_LEFT

    def _put_back(self, thing: str) -> str:
        place = self.knowledge.came_from[thing]
        return self._at_open(place, f"move {thing} to {place}")

    def _at(self, receptacle: str, command: str) -> str:
        return command if self.knowledge.here == receptacle else f"go to {receptacle}"

    def _at_open(self, receptacle: str, command: str) -> str:
        is_shut = self.knowledge.here == receptacle and receptacle in self.knowledge.shut
        return f"open {receptacle}" if is_shut else self._at(receptacle, command)
