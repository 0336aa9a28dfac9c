"""Text in, text out: reads a command, asks the world, says what happened.

The new grammar of alfworld >= 0.4 (``move X to Y``). Commands are matched as textworld matches them: surrounding
whitespace is dropped, everything else must be exact, case and inner blanks included; what is not possible answers
"Nothing happens.". Knows nothing of steps limits, rewards or models.
"""

from __future__ import annotations

from envs.alfworld import texts
from envs.alfworld.games.game import Game
from envs.alfworld.world import World

_PREPOSITION = {"take": " from ", "move": " to ", "clean": " with ", "heat": " with ", "cool": " with "}


class Play:
    """One play of a game. ``opening`` is the first text, ``won`` whether the goal holds now."""

    def __init__(self, game: Game) -> None:
        self.world = World(game)
        self.opening = texts.opening([r.name for r in game.receptacles], game.task)
        self.won = self.world.goal_reached()

    @property
    def game(self) -> Game:
        return self.world.game

    def admissible(self) -> list[str]:
        """Sorted commands that are possible now."""
        return self.world.admissible()

    def step(self, command: str) -> str:
        """Carry out one command and return the game's answer; an impossible one changes nothing."""
        answer = self._carry_out(command.strip())
        if answer is None:
            return texts.NOTHING_HAPPENS
        self.won = self.world.goal_reached()
        return answer

    def _carry_out(self, command: str) -> str | None:
        """The answer, or None where nothing happens."""
        if command in _WITHOUT_ARGUMENT:
            return _WITHOUT_ARGUMENT[command](self.world)
        if command.startswith("go to "):
            name = command[len("go to ") :]
            return f"You arrive at {name}. {_describe(self.world, name)}" if self.world.go(name) else None
        verb, _, rest = command.partition(" ")
        if verb in _PREPOSITION:
            thing, _, receptacle = rest.partition(_PREPOSITION[verb])
            return _with_two_names(self.world, verb, thing, receptacle)
        return _with_one_name(self.world, verb, rest)


def _with_one_name(world: World, verb: str, name: str) -> str | None:
    if verb == "open" and world.open(name):
        return f"You open the {name}. {_describe(world, name)}"
    if verb == "close" and world.close(name):
        return f"You close the {name}."
    if verb == "use" and world.use(name):
        return f"You turn on the {name}."
    if verb == "examine" and world.can_examine(name):
        return _describe(world, name) if name == world.here else texts.thing(name, world.states.get(name, ()))
    return None


def _with_two_names(world: World, verb: str, thing: str, receptacle: str) -> str | None:
    if verb == "take":
        return f"You pick up the {thing} from the {receptacle}." if world.take(thing, receptacle) else None
    if verb == "move":
        return f"You move the {thing} to the {receptacle}." if world.move(thing, receptacle) else None
    return f"You {verb} the {thing} using the {receptacle}." if world.treat(verb, thing, receptacle) else None


def _describe(world: World, receptacle: str) -> str:
    if not world.game.receptacle[receptacle].openable:
        return texts.surface(receptacle, world.contents(receptacle))
    if receptacle in world.opened:
        return texts.inside(receptacle, world.contents(receptacle))
    return texts.closed(receptacle)


def _look(world: World) -> str:
    return texts.lost() if world.here is None else texts.facing(world.here)


def _inventory(world: World) -> str:
    return (
        "You are not carrying anything." if world.held is None else f"You are carrying: {texts.listing([world.held])}."
    )


def _help(world: World) -> str:
    return texts.HELP


_WITHOUT_ARGUMENT = {"look": _look, "inventory": _inventory, "help": _help}
