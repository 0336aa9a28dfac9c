"""The benchmarks by name: how their tasks are listed, and what an episode of them needs.

A benchmark's module is imported when it is asked for. Knows no policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from lemur_ray.agents.trajectory import Task
from lemur_ray.config import did_you_mean
from lemur_ray.grading.sql import Reward

Prompt = Literal["full", "brief"]


@dataclass(frozen=True)
class Choice:
    """What of an evaluation concerns the tasks. ``limit`` 0: as many as the benchmark has by default."""

    limit: int = 0
    prompt: Prompt = "full"
    reward: Reward = "iou"
    handicap: bool = False


@dataclass(frozen=True)
class Benchmark:
    """``max_tokens``: of one reply, by prompt. ``thread_safe``: many episodes fit in one process."""

    load: Callable[[Choice], list[Task]]
    max_tokens: dict[str, int]
    thread_safe: bool = True
    settings: tuple[str, ...] = ()
    """Fields of the choice that change what is measured, besides the prompt."""


def _alfworld(choice: Choice) -> list[Task]:
    from envs.alfworld.tasks import load_tasks

    extra: dict[str, Any] = {"limit": choice.limit} if choice.limit else {}
    return load_tasks(prompt=choice.prompt, **extra)


def _sql(choice: Choice) -> list[Task]:
    from envs.intercode.tasks import load_sql_tasks

    return load_sql_tasks(choice.limit or None, reward=choice.reward, handicap=choice.handicap, prompt=choice.prompt)


BENCHMARKS: dict[str, Benchmark] = {
    "alfworld/text": Benchmark(_alfworld, {"full": 256, "brief": 32}),
    "intercode/sql": Benchmark(_sql, {"full": 512, "brief": 96}, settings=("reward", "handicap")),
}


def get_benchmark(name: str) -> Benchmark:
    """Raises ValueError that lists the known ones."""
    if name not in BENCHMARKS:
        raise ValueError(f"unknown benchmark {name!r}{did_you_mean(name, sorted(BENCHMARKS))}")
    return BENCHMARKS[name]
