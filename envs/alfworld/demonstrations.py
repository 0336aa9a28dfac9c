"""The expert's games as conversations, in exactly the words the environment uses. For instruction tuning."""

from __future__ import annotations

from collections.abc import Iterator

from envs.alfworld.engine import Play
from envs.alfworld.expert import play_expert
from envs.alfworld.game import Game
from envs.alfworld.generator import draw_game
from envs.alfworld.prompts import Prompt, opening
from envs.alfworld.tasks import MAX_TURNS
from lemur_ray.agents.messages import Message

SLIPS = 0.0
"""Share of the commands that are slips: who has only seen games without one repeats the first one for ever."""


def demonstrations(
    count: int, seed: int = 0, *, prompt: Prompt = "brief", slips: float = SLIPS
) -> Iterator[tuple[str, tuple[Message, ...]]]:
    """(id, messages) of the first ``count`` training games that the expert wins; each ends with its last command.

    slips: share of commands that are not the expert's (weight 0: read, not learned) and from which it recovers. A pure
    function of its arguments. Held-out games cannot be asked for: their goals are no training game's.
    """
    for index in range(count):
        game = Game.from_spec(draw_game("train", seed, index))
        first, system = opening(play := Play(game), prompt, MAX_TURNS)
        turns = play_expert(game, index, noise=slips, max_steps=MAX_TURNS)
        for turn in turns:
            play.step(turn.command)
        if not play.won:
            continue
        messages = [Message("system", system)] if system else []
        messages.append(Message("user", first))
        for turn in turns:
            messages += [Message("assistant", turn.command, weight=0 if turn.slip else 1), Message("user", turn.answer)]
        yield f"train-{seed}-{index:05d}", tuple(messages[:-1])
