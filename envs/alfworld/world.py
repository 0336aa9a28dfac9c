"""The state of one game in play: what may be done now, and what it changes.

ALFWorld's domain (alfworld 0.4.2, ``alfred.pddl``) on plain sets: who stands where, what is open, what lies where, what
is held, clean, hot, cool, lit. Knows no sentences: an action that is not possible returns False, and the words are in
``texts``. A world is plain data: it can be copied, pickled, and several may be played at once from several threads.
"""

from __future__ import annotations

from collections import Counter

from envs.alfworld.games.catalogue import TOOL_OF_VERB
from envs.alfworld.games.game import Game

_STATE_OF_VERB = {"clean": "clean", "heat": "hot", "cool": "cool"}
_ENDS = {"heat": "cool", "cool": "hot"}
_TOOL = {verb: tool.lower() for verb, tool in TOOL_OF_VERB.items()}


class World:
    """One play of a game, from its start. All arguments are names as the player sees them; unknown ones are refused."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.here: str | None = None
        """The receptacle one stands at; None in the middle of the room."""
        self.held: str | None = None
        self.opened: set[str] = set()
        self.lit: set[str] = set()
        self.place: dict[str, str] = dict(zip((t.name for t in game.things), game.start, strict=True))
        """Receptacle of every thing that is not held."""
        self.states: dict[str, set[str]] = {}
        """Thing -> those of clean, hot, cool that hold of it."""
        self._contents: dict[str, set[str]] = {r.name: set() for r in game.receptacles}
        for name, receptacle in self.place.items():
            self._contents[receptacle].add(name)

    def contents(self, receptacle: str) -> list[str]:
        """Things in or on a receptacle, in the game's order, seen or not."""
        return sorted(self._contents[receptacle], key=self.game.rank.__getitem__)

    def accessible(self, receptacle: str) -> bool:
        """Whether its contents can be seen and touched: it does not close, or is open."""
        return not self.game.receptacle[receptacle].openable or receptacle in self.opened

    def go(self, receptacle: str) -> bool:
        if receptacle not in self.game.receptacle or receptacle == self.here:
            return False
        self.here = receptacle
        return True

    def open(self, receptacle: str) -> bool:
        if not self.can_open(receptacle):
            return False
        self.opened.add(receptacle)
        return True

    def close(self, receptacle: str) -> bool:
        if receptacle != self.here or receptacle not in self.opened:
            return False
        self.opened.remove(receptacle)
        return True

    def take(self, thing: str, receptacle: str) -> bool:
        if not self.can_take(thing, receptacle):
            return False
        del self.place[thing]
        self._contents[receptacle].remove(thing)
        self.held = thing
        return True

    def move(self, thing: str, receptacle: str) -> bool:
        if not self.can_move(thing, receptacle):
            return False
        self.place[thing] = receptacle
        self._contents[receptacle].add(thing)
        self.held = None
        return True

    def treat(self, verb: str, thing: str, receptacle: str) -> bool:
        """``verb`` is clean, heat or cool. The tool may stay closed and what is in it does not matter, as upstream."""
        if not self.can_treat(verb, thing, receptacle):
            return False
        states = self.states.setdefault(thing, set())
        states.add(_STATE_OF_VERB[verb])
        states.discard(_ENDS.get(verb, ""))
        return True

    def use(self, thing: str) -> bool:
        """Switch a lamp on. As upstream, it can be used again, never goes off, and may stand in something closed."""
        if not self.can_use(thing):
            return False
        self.lit.add(thing)
        return True

    def can_open(self, receptacle: str) -> bool:
        return receptacle == self.here and self.game.receptacle[receptacle].openable and receptacle not in self.opened

    def can_take(self, thing: str, receptacle: str) -> bool:
        return (
            self.held is None
            and receptacle == self.here
            and self.place.get(thing) == receptacle
            and self.game.thing[thing].portable
            and self.accessible(receptacle)
        )

    def can_move(self, thing: str, receptacle: str) -> bool:
        return (
            thing == self.held
            and receptacle == self.here
            and self.accessible(receptacle)
            and (self.game.receptacle[receptacle].kind, self.game.thing[thing].kind) in self.game.fits
        )

    def can_treat(self, verb: str, thing: str, receptacle: str) -> bool:
        return (
            thing == self.held
            and receptacle == self.here
            and verb in self.game.thing[thing].treatable
            and self.game.receptacle[receptacle].kind == _TOOL[verb]
        )

    def can_use(self, thing: str) -> bool:
        return self.here is not None and self.place.get(thing) == self.here and self.game.thing[thing].switchable

    def can_examine(self, name: str) -> bool:
        """The furniture one stands at or the thing one holds; upstream's rule for what lies about never applies."""
        return name in (self.here, self.held)

    def goal_reached(self) -> bool:
        goal, game = self.game.goal, self.game
        if goal.light:
            holds_object = self.held is not None and game.thing[self.held].kind == goal.object
            return holds_object and any(
                self.place.get(lamp) == self.here and game.thing[lamp].kind == goal.target for lamp in self.lit
            )
        placed: Counter[str] = Counter()
        for name, receptacle in self.place.items():
            thing = game.thing[name]
            if thing.kind != goal.object or game.receptacle[receptacle].kind != goal.target:
                continue
            if goal.verb and not (
                goal.verb in thing.treatable and _STATE_OF_VERB[goal.verb] in self.states.get(name, ())
            ):
                continue
            placed[receptacle] += 1
        return any(count >= (2 if goal.two else 1) for count in placed.values())

    def admissible(self) -> list[str]:
        """Every command that would do something now, sorted: computed only when asked."""
        game, here, held = self.game, self.here, self.held
        commands = {"look", "inventory", "help"}
        commands.update(f"go to {r.name}" for r in game.receptacles if r.name != here)
        if held is not None:
            commands.add(f"examine {held}")
        if here is not None:
            commands.add(f"examine {here}")
            if game.receptacle[here].openable:
                commands.add(f"{'close' if here in self.opened else 'open'} {here}")
            for name in self._contents[here]:
                if self.can_take(name, here):
                    commands.add(f"take {name} from {here}")
                if self.can_use(name):
                    commands.add(f"use {name}")
            if held is not None:
                if self.can_move(held, here):
                    commands.add(f"move {held} to {here}")
                commands.update(f"{verb} {held} with {here}" for verb in _TOOL if self.can_treat(verb, held, here))
        return sorted(commands)
