"""Single questions played to their end in this process, for tests: tasks and what is said to each."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.messages import ChatReply, ChatRequest, Policy, Sampling
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool


class Says:
    """Replies by task."""

    name = "says"
    wants_hints = False

    def __init__(self, replies: Mapping[str, str]) -> None:
        self.replies = replies
        self.requests: dict[str, ChatRequest] = {}

    def reply(self, request: ChatRequest) -> ChatReply:
        task = request.episode.split("|")[1]
        self.requests[task] = request
        return ChatReply(self.replies[task])


def tasks_of(benchmark: str, data: Path | None, **options: Any) -> list[Task]:
    """All tasks of a benchmark by its name."""
    found = find(benchmark)
    return list(found.load(replace(found.options(), **options), EvaluationRequest(data=data)))


def play(
    tasks: Iterable[Task], policy: Policy, folder: Path, in_flight: int = 4, epochs: int = 1, starved: int = 0
) -> list[Episode]:
    """The episodes in the order of the tasks; an attempt is repeated ``starved`` times, where the machine ended it."""
    plan = EpisodePlan(
        tasks, epochs=epochs, policy=policy.name, recipe="r", sampling=Sampling(), limits=EpisodeLimits()
    )
    with Ledger(folder / "episodes.jsonl") as ledger:
        return run_episodes(
            plan, ThreadPool(policy, in_flight), ledger,
            retries=RetryPolicy(env=0, infra=starved, harness=0), progress=Progress(io.StringIO(), time.monotonic),
            clock=time.monotonic,
        )  # fmt: skip


def verdicts(episodes: Iterable[Episode]) -> dict[str, bool]:
    """Task -> solved. Every episode must have a score."""
    every = list(episodes)
    unscored = [(episode.key.task, episode.detail) for episode in every if not episode.outcome.scored]
    assert not unscored, unscored[:3]
    return {episode.key.task: episode.score == 1 for episode in every}


def golds(tasks: Iterable[Task], folder: Path) -> dict[str, bool]:
    """What the benchmark's own golds are worth."""
    return verdicts(play(tasks, ExpertPolicy(), folder))
