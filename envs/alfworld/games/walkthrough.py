"""The shortest honest proof that a game can be won: the commands of one who knows where everything is.

Not what a player could know from the texts: train on the searching expert, not on this.
"""

from __future__ import annotations

from envs.alfworld.games.catalogue import TOOL_OF_VERB
from envs.alfworld.games.game import Game


def walkthrough(game: Game) -> list[str]:
    """Commands that win the game from its start. Raises ValueError that names what is missing if nothing can win it."""
    goal = game.goal
    commands: list[str] = []
    here = ""
    opened: set[str] = set()

    def reach(name: str, look_inside: bool = True) -> None:
        nonlocal here
        if name != here:
            commands.append(f"go to {name}")
            here = name
        if look_inside and game.receptacle[name].openable and name not in opened:
            commands.append(f"open {name}")
            opened.add(name)

    def first(kind: str) -> str:
        for receptacle in game.receptacles:
            if receptacle.kind == kind:
                return receptacle.name
        raise ValueError(f"no {kind} in the game: its goal cannot be reached")

    places = dict(zip((t.name for t in game.things), game.start, strict=True))
    wanted = [thing for thing in game.things if thing.kind == goal.object and thing.portable]
    if goal.verb:
        wanted = [thing for thing in wanted if goal.verb in thing.treatable]
    number = 2 if goal.two else 1
    if len(wanted) < number:
        raise ValueError(f"{len(wanted)} {goal.object} that can be used in the game, the goal needs {number}")
    for thing in wanted[:number]:
        reach(places[thing.name])
        commands.append(f"take {thing.name} from {here}")
        if goal.verb:
            reach(first(TOOL_OF_VERB[goal.verb].lower()), look_inside=False)
            commands.append(f"{goal.verb} {thing.name} with {here}")
        if goal.light:
            lamps = [t.name for t in game.things if t.kind == goal.target and t.switchable]
            if not lamps:
                raise ValueError(f"no {goal.target} in the game: its goal cannot be reached")
            reach(places[lamps[0]])
            commands.append(f"use {lamps[0]}")
        else:
            reach(first(goal.target))
            if (goal.target, thing.kind) not in game.fits:
                raise ValueError(f"a {thing.kind} does not fit a {goal.target}: the goal cannot be reached")
            commands.append(f"move {thing.name} to {here}")
    return commands
