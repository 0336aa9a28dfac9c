"""The state of one game in play: what may be done now, and what it changes.

ALFWorld's domain (``alfred.pddl``) on plain sets: who stands where, what is open, what lies where, what is held, clean,
hot, cool, lit, sliced. Several receptacles may share a location and a thing may lie in several of them, as in the real
games. Knows no sentences: an action that is not possible returns False. A world is plain data: it can be copied,
pickled, and several may be played at once from several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from envs.alfworld.games.game import Game

_STATE_OF_VERB = {"clean": "clean", "heat": "hot", "cool": "cool"}
_ENDS = {"heat": "cool", "cool": "hot"}
_KNIVES = frozenset({"knife", "butterknife"})
_NOTHING: frozenset[str] = frozenset()


class World:
    """One play of a game, from its start. All arguments are names as the player sees them; unknown ones are refused."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.here = game.start.location
        """The location one stands at."""
        self.held: str | None = None
        self.opened = set(game.start.opened)
        self.states: dict[str, set[str]] = {}
        """Thing -> those of clean, hot, cool, lit, sliced that hold of it."""
        self.inside: dict[str, set[str]] = {r.name: set() for r in game.receptacles}
        """Receptacle -> the things in or on it, seen or not."""
        self.lying: dict[str, set[str]] = {t.name: set() for t in game.things}
        """Thing -> the locations it counts as lying at, held or not."""
        self._taken: set[tuple[str, str]] = set()
        """(thing, receptacle) it was taken from and not put back into: what a look finds beside the furniture."""
        for name, state in game.start.states:
            self.states.setdefault(name, set()).add(state)
        for name, receptacle in game.start.inside:
            self.inside[receptacle].add(name)
        for name, location in game.start.lying:
            self.lying[name].add(location)

    def do(self, verb: str, *names: str) -> bool:
        """Carries out an action if it is possible; False and nothing changed if not."""
        return _RULES[verb](self, *names)

    def furniture_here(self) -> list[str]:
        """The receptacles at the player's location, in the game's order."""
        return [receptacle.name for receptacle in self.game.at.get(self.here, ())]

    def contents(self, receptacle: str) -> list[str]:
        """Things in or on a receptacle, in the game's order, seen or not."""
        return sorted(self.inside[receptacle], key=self.game.rank.__getitem__)

    def beside(self) -> list[str]:
        """What lies about where one stands: things taken out of one receptacle here and put into another here."""
        here = set(self.furniture_here())
        found = {t for t, receptacle in self._taken if receptacle in here and self.here in self.lying[t]}
        return sorted(found, key=self.game.rank.__getitem__)

    def accessible(self, receptacle: str) -> bool:
        """Whether its contents can be seen and touched: it does not close, or is open."""
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
        """As upstream, what is in something closed can be sliced."""
        return (
            knife == self.held
            and self.game.thing[knife].kind in _KNIVES
            and thing in self.game.thing
            and self.game.thing[thing].sliceable
            and self.here in self.lying[thing]
        )

    def can_examine(self, name: str) -> bool:
        """The furniture where one stands or the thing one holds; upstream's rule for what lies about never applies."""
        return name == self.held or self.is_here(name)

    def stands_here(self, thing: str) -> bool:
        """Whether it is in or on some furniture where one stands."""
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
        """Every action that would do something now, in no order; some may come twice."""
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


def _always(world: World) -> bool:
    return True


def _treating(verb: str) -> Callable[[World, str, str], bool]:
    return lambda world, thing, receptacle: world.treat(verb, thing, receptacle)


_RULES: Mapping[str, Callable[..., bool]] = {
    **dict.fromkeys(("look", "inventory", "help"), _always),
    **{verb: _treating(verb) for verb in _STATE_OF_VERB},
    "go": World.go,
    "open": World.open,
    "close": World.close,
    "take": World.take,
    "put": World.put,
    "use": World.use,
    "slice": World.slice,
    "examine": World.can_examine,
}
