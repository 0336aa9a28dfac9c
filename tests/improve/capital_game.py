"""A game that a random model wins now and then: begin a reply with a capital letter, within three turns.

``BENCHMARK`` has the splits that an improvement run needs and an expert, who always says ``A``; ``WITHOUT_SPLITS`` has
neither, ``UNWINNABLE`` never ends well, and the expert of ``RANDOM_EXPERT`` says a letter at random. ``start_run``
writes the run of a tiny random model that can play it.
"""

import dataclasses
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Literal

import gymnasium

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest
from lemur_ray.config import DataConfig, ModelConfig, OptimizerConfig, Recipe, TrainConfig
from lemur_ray.improve.config import ImproveConfig
from lemur_ray.improve.learner import Learner, LearnerSpec
from lemur_ray.recipes.nano_improve import RECIPE
from lemur_ray.text.tokenizer import Tokenizer

NAME = "tests.improve.capital_game:BENCHMARK"
ENV_ID = "tests.improve.capital_game:toy/Capital-v0"
SEQ_LEN = 192
TOKENIZER = Tokenizer.bytes_only()
MODEL = ModelConfig(
    vocab_size=TOKENIZER.vocab_size, num_layers=1, dim=32, ffn_dim=48, num_heads=2, num_kv_heads=1, head_dim=16,
    max_seq_len=SEQ_LEN,
)  # fmt: skip
START = Recipe(
    name="tiny", model=MODEL, data=DataConfig(seq_len=SEQ_LEN), optimizer=OptimizerConfig(), train=TrainConfig(steps=1)
)


class CapitalEnv(gymnasium.Env[str, str]):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.has_hints, self.winnable = (options or {}).get("hints", False), (options or {}).get("winnable", True)
        self.letters = random.Random((options or {}).get("random_expert"))
        self.is_random = "random_expert" in (options or {})
        return f"letter {(options or {}).get('index', 0)}", self.hints()

    def hints(self) -> dict[str, Any]:
        expert = self.letters.choice(ascii_lowercase * 4 + ascii_uppercase) if self.is_random else "A"
        return {"hints": {"expert": expert}} if self.has_hints else {}

    def step(self, reply: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        solved, valid = self.winnable and "A" <= reply[:1] <= "Z", reply[:1].isascii()
        return "no", float(solved), solved, False, {"valid": valid, "solved": solved, **self.hints()}


gymnasium.register("toy/Capital-v0", entry_point=CapitalEnv)


@dataclass(frozen=True)
class Options:
    split: Literal["heldout", "train"] = "heldout"


@dataclass(frozen=True)
class NoOptions:
    pass


def tasks(options: Any, request: EvaluationRequest) -> Iterator[Task]:
    split = getattr(options, "split", "all")
    for index in range(40):
        yield Task(NAME, f"{split}-{index}", ENV_ID, "letter", {"index": index}, max_turns=3)


BENCHMARK = Benchmark(Options, tasks, {"full": 2, "brief": 2}, has_hints=True)
UNWINNABLE = Benchmark(
    Options, lambda *given: (replace(task, options={"winnable": False}) for task in tasks(*given)), BENCHMARK.max_tokens
)
RANDOM_EXPERT = Benchmark(
    Options,
    lambda *given: (
        replace(task, options=task.options | {"random_expert": task.options["index"]}) for task in tasks(*given)
    ),
    BENCHMARK.max_tokens,
    has_hints=True,
)
WITHOUT_SPLITS = Benchmark(NoOptions, tasks, {"full": 2, "brief": 2})


def start_run(folder: Path, seed: int = 0) -> Path:
    """Write the run folder of a random model with bytes as tokens; returns it."""
    recipe = dataclasses.replace(START, train=TrainConfig(steps=1, seed=seed))
    folder.mkdir(parents=True)
    TOKENIZER.save(folder / "tokenizer.json")
    (folder / "recipe.json").write_text(json.dumps({"recipe": dataclasses.asdict(recipe), "hash": recipe.hash}))
    learner = Learner(LearnerSpec(recipe, str(folder), ""))
    learner.open()
    learner.close()
    return folder


def config_of(start: Path, out: Path, eps: float = 1e-8, **options: Any) -> ImproveConfig:
    """Two short rounds of the game. eps: of the optimizer; with 0, weights without a gradient become NaN."""
    recipe = dataclasses.replace(
        RECIPE,
        data=DataConfig(seq_len=SEQ_LEN),
        optimizer=dataclasses.replace(RECIPE.optimizer, peak_lr=2e-2, warmup_steps=1, eps=eps),
        train=dataclasses.replace(RECIPE.train, steps=8),
    )
    given = {"benchmark": NAME, "rounds": 2, "games": 24, "eval_games": 10, "in_flight": 8, **options}
    return ImproveConfig(init_from=str(start), out=str(out), recipe=recipe, **given)
