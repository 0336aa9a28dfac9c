"""The expert's games as conversations, in exactly the words the environment uses. For instruction tuning."""

from __future__ import annotations

from collections.abc import Iterator

from envs.alfworld.engine import Play
from envs.alfworld.expert import play_expert
from envs.alfworld.game import Game
from envs.alfworld.generator import draw_game
from envs.alfworld.prompts import Prompt, opening
from envs.alfworld.tasks import MAX_TURNS
from envs.alfworld.triples import Split
from lemur_ray.agents.messages import Message


def demonstrations(
    count: int, seed: int = 0, *, split: Split = "train", prompt: Prompt = "brief"
) -> Iterator[tuple[str, tuple[Message, ...]]]:
    """(id, messages) of the first ``count`` games of a split that the expert wins; ends with the winning command.

    Raises ValueError for anything but the training split's goals if asked to train on held-out games.
    """
    if split != "train":
        raise ValueError(f"demonstrations of split {split!r}: only games of the split 'train' may be trained on")
    for index in range(count):
        game = Game.from_spec(draw_game(split, seed, index))
        turns = play_expert(game, max_steps=MAX_TURNS)
        play = Play(game)
        for command, _ in turns:
            play.step(command)
        if not play.won:
            continue
        first, system = opening(Play(game), prompt, MAX_TURNS)
        messages = [Message("system", system)] if system else []
        messages.append(Message("user", first))
        for command, answer in turns:
            messages += [Message("assistant", command), Message("user", answer)]
        yield f"{split}-{seed}-{index:05d}", tuple(messages[:-1])
