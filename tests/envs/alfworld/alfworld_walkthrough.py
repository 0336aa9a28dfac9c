"""The shortest honest proof that a game can be won: the commands of one who knows where everything is.

Of real and generated games, in their own grammar.
"""

from __future__ import annotations

from envs.alfworld.games.catalogue import TOOL_OF_VERB
from envs.alfworld.games.game import Game
from envs.alfworld.grammar import GRAMMARS


def walkthrough(game: Game) -> list[str]:
    """Commands that win the game from its start. Raises ValueError that names what is missing if nothing can win it."""
    goal, grammar = game.goal, GRAMMARS[game.grammar]
    commands: list[str] = []
    here = game.start.location
    opened = set(game.start.opened)

    def do(*action: str) -> None:
        commands.append(grammar.write(action))

    def reach(name: str, look_inside: bool = True) -> str:
        nonlocal here
        receptacle = game.receptacle[name]
        if receptacle.location != here:
            do("go", name)
            here = receptacle.location
        if look_inside and receptacle.openable and name not in opened:
            do("open", name)
            opened.add(name)
        return name

    def first(kind: str) -> str:
        for receptacle in game.receptacles:
            if receptacle.kind == kind:
                return receptacle.name
        raise ValueError(f"no {kind} in the game: its goal cannot be reached")

    places = dict(game.start.inside)
    wanted = [thing for thing in game.things if thing.name in game.wanted and thing.portable and thing.name in places]
    number = 2 if goal.two else 1
    if len(wanted) < number:
        raise ValueError(f"{len(wanted)} {goal.object} that can be used in the game, the goal needs {number}")
    for thing in wanted[:number]:
        do("take", thing.name, reach(places[thing.name]))
        if goal.verb:
            tools = [r.name for r in game.receptacles if (goal.verb, r.kind) in game.tools]
            tool = tools[0] if tools else first(TOOL_OF_VERB[goal.verb].lower())
            do(goal.verb, thing.name, reach(tool, look_inside=False))
        if goal.light:
            lamps = [name for name in game.targets if name in places]
            if not lamps:
                raise ValueError(f"no {goal.target} in the game: its goal cannot be reached")
            reach(places[lamps[0]])
            do("use", lamps[0])
        else:
            target = reach(first(goal.target))
            if (goal.target, thing.kind) not in game.fits:
                raise ValueError(f"a {thing.kind} does not fit a {goal.target}: the goal cannot be reached")
            do("put", thing.name, target)
    return commands
