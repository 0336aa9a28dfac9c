"""The expert's games as conversations, in exactly the words the environment uses. For instruction tuning.

Each reply says first what the expert goes by, then the command: the goal object it sees (number 0: none here), where
it is and what comes next in the room line while it searches, what it has to do with what it holds. All of that stands
in the text before it, so that every step of the decision is one a small model can learn to look up.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from envs.alfworld.engine import Play
from envs.alfworld.expert import Expert
from envs.alfworld.game import Game
from envs.alfworld.generator import draw_game
from envs.alfworld.knowledge import Knowledge, kind_of
from envs.alfworld.prompts import Prompt, opening
from envs.alfworld.renaming import renamed
from envs.alfworld.tasks import MAX_TURNS
from lemur_ray.agents.messages import Message


def demonstrations(
    count: int, seed: int = 0, *, prompt: Prompt = "brief", renamed_share: float = 0.8
) -> Iterator[tuple[str, tuple[Message, ...]]]:
    """(id, messages) of the first ``count`` training games that the expert wins; each ends with its last command.

    ``renamed_share`` of the games have their names traded (``renaming``). A pure function of its arguments.
    """
    for index in range(count):
        play = Play(Game.from_spec(draw_game("train", seed, index)))
        first, system = opening(play, prompt, MAX_TURNS)
        messages = [Message("system", system)] if system else []
        messages.append(Message("user", first))
        expert = Expert(play.opening)
        for _ in range(MAX_TURNS):
            command = expert.advice()
            messages.append(Message("assistant", f"{reason(expert.knowledge, command)}\n> {command}"))
            answer = play.step(command)
            expert.observe(command, answer)
            if play.won:
                break
            messages.append(Message("user", answer))
        if not play.won:
            continue
        rng = random.Random(f"alfworld demonstration {seed} {index}")
        chosen = renamed(messages, rng) if rng.random() < renamed_share else tuple(messages)
        yield f"train-{seed}-{index:05d}", chosen


def reason(known: Knowledge, command: str) -> str:
    """Why the expert gives this command, in a few words that can be read off what was seen."""
    goal, words = known.goal, command.split()
    if known.held is None or kind_of(known.held) != goal.object:
        wanted = goal.object
        seen = {known.seen[thing]: thing for thing in reversed(known.goal_things())}
    elif goal.light:
        wanted = "desklamp"
        seen = {known.seen[lamp]: lamp} if (lamp := known.lamp()) else {}
    elif goal.verb and goal.verb not in known.treated.get(known.held, ()):
        return f"{goal.verb} {known.held}"
    else:
        return f"to {known.of_kind(goal.target)[0]}"
    if words[0] in ("take", "use"):
        return f"see {words[1]} {words[2]}"
    place = " ".join(words[2:]) if command.startswith("go to ") else known.here
    if place in seen:
        return f"see {seen[place]}"
    if command.startswith("go to ") and known.here:
        return f"see {wanted} 0 after {known.here} {place}"
    return f"see {wanted} 0"
