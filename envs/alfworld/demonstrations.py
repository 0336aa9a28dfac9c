"""Games that the expert wins as conversations to tune on, with or without slips."""

from collections.abc import Iterator
from random import Random

from envs.alfworld.expert import Expert
from envs.alfworld.games.game import Game
from envs.alfworld.games.generator import draw_game
from envs.alfworld.play import Play
from envs.alfworld.prompts import Prompt, opening
from envs.alfworld.slips import slip
from envs.alfworld.tasks import MAX_TURNS
from lemur_ray.agents.messages import Message


def demonstrations(
    count: int, slips: float = 0.0, seed: int = 0, *, prompt: Prompt = "brief"
) -> Iterator[tuple[str, tuple[Message, ...]]]:
    """Play the first ``count`` training games of ``seed`` with the expert, and yield (id, messages up to its last
    command) for each that it wins, so there may be fewer than ``count``. A reply is the expert's thought, if it has
    one, and its command on the last line (docs/decisions/004). slips: chance (0 to 1) that the expert's turn comes
    after one with a command that the game refuses (weight 0). A pure function of its arguments. No held-out game is
    used, and no goal of one."""
    for index in range(count):
        play, random = Play(Game.from_spec(draw_game("train", seed, index))), Random(f"slips {seed} {index}")
        first, system = opening(play, play.game, prompt, MAX_TURNS)
        messages = [Message("system", system)] if system else []
        messages.append(Message("user", first))
        expert, may_slip = Expert(play.opening), True
        for _ in range(MAX_TURNS):
            mistake = slip(play, expert, random) if may_slip and slips and random.random() < slips else None
            thought, command = mistake or (expert.thought(), expert.advice())
            may_slip = mistake is None
            answer = play.step(command)
            reply = f"{thought}\n{command}" if thought else command
            messages += [Message("assistant", reply, weight=int(may_slip)), Message("user", answer)]
            expert.observe(command, answer)
            if play.won:
                yield f"train-{seed}-{index:05d}", tuple(messages[:-1])
                break
