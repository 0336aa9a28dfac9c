"""Conversations in which the scripted expert wins generated games, worded as the environment does, for fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator

from envs.alfworld.expert import Expert
from envs.alfworld.games.game import Game
from envs.alfworld.games.generator import draw_game
from envs.alfworld.play import Play
from envs.alfworld.prompts import Prompt, opening
from envs.alfworld.tasks import MAX_TURNS
from lemur_ray.agents.messages import Message


def demonstrations(count: int, seed: int = 0, *, prompt: Prompt = "brief") -> Iterator[tuple[str, tuple[Message, ...]]]:
    """Yield (id, messages) for each of the first ``count`` training games that the expert wins, up to its last command.

    A reply is the expert's thought, if it has one, and its command on the last line (docs/decisions/004). A pure
    function of its arguments. No held-out game is used, and no goal of one.
    """
    for index in range(count):
        play = Play(Game.from_spec(draw_game("train", seed, index)))
        first, system = opening(play, play.game, prompt, MAX_TURNS)
        messages = [Message("system", system)] if system else []
        messages.append(Message("user", first))
        expert = Expert(play.opening)
        for _ in range(MAX_TURNS):
            thought, command = expert.thought(), expert.advice()
            answer = play.step(command)
            reply = f"{thought}\n{command}" if thought else command
            messages += [Message("assistant", reply), Message("user", answer)]
            expert.observe(command, answer)
            if play.won:
                yield f"train-{seed}-{index:05d}", tuple(messages[:-1])
                break
