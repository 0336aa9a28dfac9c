"""Prompts of a game: a system prompt for any language model, or the bare opening for a tuned one."""

from collections.abc import Mapping
from typing import Literal, get_args

from envs.alfworld.games.game import Game, GrammarName
from envs.alfworld.package_play import PackagePlay
from envs.alfworld.play import Play
from envs.alfworld.sentences import room_line, task_line

Prompt = Literal["full", "brief"]
PROMPTS: tuple[Prompt, ...] = get_args(Prompt)
_LINES: Mapping[GrammarName, Mapping[str, str]] = {
    "new": {
        "put": "move <object> to <furniture>        put the object you carry on or into the furniture you stand at",
        "look": "look, inventory, help               where you are, what you carry, all commands",
    },
    "old": {
        "put": "put <object> in/on <furniture>      put the object you carry on or into the furniture you stand at",
        "look": "look, inventory                     where you are, what you carry",
    },
}
_SYSTEM = """\
You act in a text game that is set in one room of a household. Each of my messages tells you what you see; each of
your replies is one command. You have {max_steps} commands to do the task that the first message names.

Commands, where names are written exactly as the game writes them, number included (for example "cabinet 2"):
  go to <furniture>                   walk to a piece of furniture; you see what is on it
  open <furniture>                    open the closed furniture you stand at, and see what is in it
  close <furniture>                   close it
  take <object> from <furniture>      pick up an object; you can carry only one
  {put}
  clean <object> with <sinkbasin>     clean the object you carry; stand at a sinkbasin
  heat <object> with <microwave>      heat the object you carry; stand at a microwave
  cool <object> with <fridge>         cool the object you carry; stand at a fridge
  use <lamp>                          switch on a lamp; stand at the furniture it is on
  examine <furniture or object>       look closely at the furniture you stand at or the object you carry
  {look}

What helps:
- Objects are hidden: go from one piece of furniture to the next, and open what is closed.
- Only the furniture you stand at can be opened, taken from or put into. Closed furniture must be opened before you take
  from it or put into it. To clean, heat or cool, keep holding the object; nothing has to be opened or switched on.
- "Nothing happens." means that the command was not possible; it still counts. Do not repeat it, change something first.
- To look at an object under a lamp, carry the object to the lamp and use the lamp.
- If the task asks for two objects, bring them one after the other to the same piece of furniture.

You may think before you act. End every reply with one line of the form
> command
"""


def opening(play: Play | PackagePlay, game: Game, prompt: Prompt, max_steps: int) -> tuple[str, str | None]:
    """Return (first observation, system prompt). With ``prompt`` "full" the system prompt explains the game and
    ``max_steps``; with "brief" there is none (None), and the observation has only the task line and the room line."""
    if prompt == "full":
        return play.opening, _SYSTEM.format(max_steps=max_steps, **_LINES[game.grammar])
    room = room_line([receptacle.name for receptacle in game.receptacles])
    return f"{task_line(game.task)}\n{room}", None
