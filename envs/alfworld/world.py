"""The state of one ALFWorld game in play: which actions are possible, and their effects.

ALFWorld's domain (``alfred.pddl``) on plain sets: the player's location, what is open, what lies where, what is in
hand, clean, hot, cool, lit, sliced. Several receptacles may share a location and a thing may lie in several of them, as
in the real games. A world is plain data: it can be copied and pickled."""

import hashlib
from collections.abc import Callable, Iterator, Mapping

from envs.alfworld.games.game import Game

_STATE_OF_VERB = {"clean": "clean", "heat": "hot", "cool": "cool"}
_ENDS = {"heat": "cool", "cool": "hot"}
_KNIVES = frozenset({"knife", "butterknife"})
_NOTHING: frozenset[str] = frozenset()


class World:
    """The state of one play. Arguments are names as players see them. An action returns whether it was possible; if it
    was not, or a name is unknown, it changes nothing."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.here = game.start.location
        """The player's location."""
        self.held: str | None = None
        self.opened = set(game.start.opened)
        self.states: dict[str, set[str]] = {}
        """Thing -> its states: clean, hot, cool, lit, sliced."""
        self.inside: dict[str, set[str]] = {r.name: set() for r in game.receptacles}
        """Receptacle -> the things in or on it, visible or not."""
        self.lying: dict[str, set[str]] = {t.name: set() for t in game.things}
        """Thing -> the locations it counts as lying at, in hand or not."""
        self._taken: set[tuple[str, str]] = set()
        """(thing, receptacle) pairs of things taken out and not put back: a look lists them after the furniture."""
        for name, state in game.start.states:
            self.states.setdefault(name, set()).add(state)
        for name, receptacle in game.start.inside:
            self.inside[receptacle].add(name)
        for name, location in game.start.lying:
            self.lying[name].add(location)

    def do(self, verb: str, *names: str) -> bool:
        """Execute the action ``verb`` on ``names`` in the order of the command. Raises KeyError for an unknown verb."""
        return _RULES[verb](self, *names)

    def digest(self) -> str:
        """Hash (16 hex digits) of the state: location, thing in hand, what is open, what lies where, what is hot."""
        things, states = ({n: sorted(v) for n, v in of.items() if v} for of in (self.inside, self.states))
        state = (self.here, self.held, sorted(self.opened), sorted(things.items()), sorted(states.items()))
        return hashlib.blake2b(repr(state).encode(), digest_size=8).hexdigest()

    def furniture_here(self) -> list[str]:
        """The receptacles at the player's location, in the game's order."""
        return [receptacle.name for receptacle in self.game.at.get(self.here, ())]

    def contents(self, receptacle: str) -> list[str]:
        """Things in or on a receptacle, in the game's order, visible or not."""
        return sorted(self.inside[receptacle], key=self.game.rank.__getitem__)

    def beside(self) -> list[str]:
        """Things lying loose at the player's location, taken out of one receptacle here and put into another."""
        here = set(self.furniture_here())
        things = {t for t, receptacle in self._taken if receptacle in here and self.here in self.lying[t]}
        return sorted(things, key=self.game.rank.__getitem__)

    def accessible(self, receptacle: str) -> bool:
        """Whether the contents of a receptacle can be seen and taken: it does not close, or is open."""
        return not self.game.receptacle[receptacle].openable or receptacle in self.opened

    def go(self, receptacle: str) -> bool:
        if receptacle not in self.game.receptacle or self.is_here(receptacle):
            return False
        self.here = self.game.receptacle[receptacle].location
        return True

    def open(self, receptacle: str) -> bool:
        if not self.can_open(receptacle):
            return False
        self.opened.add(receptacle)
        return True

    def close(self, receptacle: str) -> bool:
        if receptacle not in self.opened or not self.is_here(receptacle):
            return False
        self.opened.remove(receptacle)
        return True

    def take(self, thing: str, receptacle: str) -> bool:
        if not self.can_take(thing, receptacle):
            return False
        self.inside[receptacle].remove(thing)
        self._taken.add((thing, receptacle))
        self.lying[thing].discard(self.here)
        self.held = thing
        return True

    def put(self, thing: str, receptacle: str) -> bool:
        if not self.can_put(thing, receptacle):
            return False
        self.inside[receptacle].add(thing)
        self._taken.discard((thing, receptacle))
        self.lying[thing].add(self.here)
        self.held = None
        return True

    def treat(self, verb: str, thing: str, receptacle: str) -> bool:
        """Clean, heat or cool (``verb``) the held thing at a tool (``receptacle``); False if impossible. As upstream,
        the tool may be closed or full."""
        if not self.can_treat(verb, thing, receptacle):
            return False
        states = self.states.setdefault(thing, set())
        states.add(_STATE_OF_VERB[verb])
        states.discard(_ENDS.get(verb, ""))
        return True

    def use(self, thing: str) -> bool:
        """Switch a lamp on; False if impossible. As upstream, it never goes off, and may be inside closed furniture."""
        if not self.can_use(thing):
            return False
        self.states.setdefault(thing, set()).add("lit")
        return True

    def slice(self, thing: str, knife: str) -> bool:
        if not self.can_slice(thing, knife):
            return False
        self.states.setdefault(thing, set()).add("sliced")
        return True

    def is_here(self, receptacle: str) -> bool:
        known = self.game.receptacle.get(receptacle)
        return known is not None and known.location == self.here

    def can_open(self, receptacle: str) -> bool:
        return self.is_here(receptacle) and not self.accessible(receptacle)

    def can_take(self, thing: str, receptacle: str) -> bool:
        return (
            self.held is None
            and self.is_here(receptacle)
            and thing in self.inside[receptacle]
            and self.game.thing[thing].portable
            and self.accessible(receptacle)
        )

    def can_put(self, thing: str, receptacle: str) -> bool:
        return (
            thing == self.held
            and self.is_here(receptacle)
            and self.accessible(receptacle)
            and (self.game.receptacle[receptacle].kind, self.game.thing[thing].kind) in self.game.fits
        )

    def can_treat(self, verb: str, thing: str, receptacle: str) -> bool:
        return (
            thing == self.held
            and self.is_here(receptacle)
            and verb in self.game.thing[thing].treatable
            and (verb, self.game.receptacle[receptacle].kind) in self.game.tools
        )

    def can_use(self, thing: str) -> bool:
        known = self.game.thing.get(thing)
        return known is not None and known.switchable and self.stands_here(thing)

    def can_slice(self, thing: str, knife: str) -> bool:
        """Whether the knife is in hand and the thing lies here. As upstream, it may lie inside closed furniture."""
        return (
            knife == self.held
            and self.game.thing[knife].kind in _KNIVES
            and thing in self.game.thing
            and self.game.thing[thing].sliceable
            and self.here in self.lying[thing]
        )

    def can_examine(self, name: str) -> bool:
        """Whether the name is that of the thing in hand or of furniture at the player's location."""
        return name == self.held or self.is_here(name)

    def stands_here(self, thing: str) -> bool:
        """Whether a thing is in or on furniture at the player's location."""
        return any(thing in self.inside[receptacle.name] for receptacle in self.game.at.get(self.here, ()))

    def goal_reached(self) -> bool:
        game, goal, states = self.game, self.game.goal, self.states
        if goal.light:
            return self.held in game.wanted and any(
                "lit" in states.get(lamp, _NOTHING) and self.stands_here(lamp) for lamp in game.targets
            )
        wanted = game.wanted
        if goal.verb:
            state = _STATE_OF_VERB[goal.verb]
            wanted = frozenset(thing for thing in wanted if state in states.get(thing, _NOTHING))
        number = 2 if goal.two else 1
        return any(len(wanted & self.inside[receptacle]) >= number for receptacle in game.targets)

    def possible(self) -> Iterator[tuple[str, ...]]:
        """Yield every possible action as (verb, *names), in no order and possibly repeated."""
        game, held = self.game, self.held
        yield from (("look",), ("inventory",), ("help",))
        yield from (("go", r.name) for r in game.receptacles if r.location != self.here)
        for name in self.furniture_here():
            yield "examine", name
            if game.receptacle[name].openable:
                yield "close" if name in self.opened else "open", name
            for thing in self.inside[name]:
                if held is None and self.can_take(thing, name):
                    yield "take", thing, name
                if game.thing[thing].switchable:
                    yield "use", thing
            if held is not None:
                if self.can_put(held, name):
                    yield "put", held, name
                yield from ((verb, held, name) for verb in _STATE_OF_VERB if self.can_treat(verb, held, name))
        if held is not None:
            yield "examine", held
            yield from (("slice", thing, held) for thing in self.lying if self.can_slice(thing, held))


_RULES: Mapping[str, Callable[..., bool]] = {
    **dict.fromkeys(("look", "inventory", "help"), lambda world: True),
    **{verb: lambda world, *names, verb=verb: world.treat(verb, *names) for verb in _STATE_OF_VERB},
    "go": World.go,
    "open": World.open,
    "close": World.close,
    "take": World.take,
    "put": World.put,
    "use": World.use,
    "slice": World.slice,
    "examine": World.can_examine,
}
