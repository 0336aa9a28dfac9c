"""Generated ALFWorld games as benchmark tasks."""

import itertools
from collections.abc import Iterator

from envs.alfworld.games.generator import draw_game
from envs.alfworld.games.triples import Split
from envs.alfworld.prompts import PROMPTS, Prompt
from lemur_ray.agents.trajectory import Task

BENCHMARK = "alfworld/text"
ENV_ID = "envs:lemur/ALFWorldText-v0"
MAX_TURNS = 50


def games(split: Split = "heldout", seed: int = 0, prompt: Prompt = "full", hints: bool = False) -> Iterator[Task]:
    """Yield the tasks of a split without end, alternating between task types; ``category`` is the task type. The id
    names the game (split, seed, index) and not prompt or hints, so runs of several policies on the same games can be
    compared. Raises ValueError for an unknown split or prompt."""
    if prompt not in PROMPTS:
        raise ValueError(f"prompt {prompt!r}: expected one of {', '.join(PROMPTS)}")
    for index in itertools.count():
        game = {"split": split, "seed": seed, "index": index}
        yield Task(
            benchmark=BENCHMARK,
            id=f"{split}-{seed}-{index:05d}",
            env_id=ENV_ID,
            category=draw_game(split, seed, index).task_type,
            options={**game, "prompt": prompt, "hints": hints, "max_steps": MAX_TURNS},
            max_turns=MAX_TURNS,
        )
