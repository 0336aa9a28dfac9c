"""What a run keeps in its own process does not grow with what was said in its episodes."""

from __future__ import annotations

import gc
import io
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

from lemur_ray.agents.messages import Message, Sampling
from lemur_ray.agents.trajectory import Episode, Outcome, Step, Trajectory
from lemur_ray.rollout.actors.actor import EpisodeEnded
from lemur_ray.rollout.actors.pool import ActorPool, PoolLimits
from lemur_ray.rollout.attempt import Attempt, EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.ledger import Ledger, read_episodes
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from tests.rollout.actors.scripted_backend import ScriptedBackend
from tests.rollout.toy import toy_task

TASKS, EPOCHS, ACTORS = 40, 12, 20
EARLY, LATE = 5 * ACTORS, 23 * ACTORS
TEXT_BYTES = 8_000
"""Of each episode."""
LEDGER_BYTES = 600
"""Of each episode, what the ledger knows: its key, and where it stands."""


def long_talk(spec: EpisodeSpec) -> EpisodeEnded:
    texts = [f"{spec.key.task} {spec.key.epoch} {turn} ".ljust(TEXT_BYTES // 4, "x") for turn in range(4)]
    steps = tuple(Step(text, "go", "ok", 0.0, True, prompt_tokens=100, completion_tokens=10) for text in texts)
    return EpisodeEnded(0, Attempt(Outcome.SOLVED, 1.0, Trajectory((Message("user", "Walk."),), steps)))


def test_memory_does_not_grow_with_what_was_said_in_episodes(tmp_path: Path):
    held: dict[int, int] = {}
    alive: dict[int, int] = {}

    def play(spec: EpisodeSpec) -> EpisodeEnded:
        number = spec.key.epoch * TASKS + int(spec.task.id[1:])
        if number in (EARLY, LATE):
            gc.collect()
            held[number] = tracemalloc.get_traced_memory()[0]
            alive[number] = sum(type(one) in (EpisodeSpec, Episode, Step) for one in gc.get_objects())
        return long_talk(spec)

    def go_on() -> list[Outcome]:
        plan = EpisodePlan(
            [toy_task(f"t{n}") for n in range(TASKS)],
            epochs=EPOCHS, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits(),
        )  # fmt: skip
        pool = ActorPool(ScriptedBackend([1], play), PoolLimits(ACTORS, 1))
        with Ledger(path) as ledger:
            progress = Progress(io.StringIO(), time.monotonic)
            ended = run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
        assert len(ended) == TASKS * EPOCHS
        return [episode.outcome for episode in ended]

    path = tmp_path / "episodes.jsonl"
    tracemalloc.start()
    try:
        assert set(go_on()) == {Outcome.SOLVED}
        assert (held[LATE] - held[EARLY]) / (LATE - EARLY) < LEDGER_BYTES < TEXT_BYTES / 10
        assert abs(alive[LATE] - alive[EARLY]) < 100
        first_run = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        go_on()  # all is there: what is read is forgotten again
        assert tracemalloc.get_traced_memory()[1] - first_run < TASKS * EPOCHS * (LEDGER_BYTES + TEXT_BYTES / 10)
    finally:
        tracemalloc.stop()


def test_what_a_run_returns_reads_the_file_and_is_equal_to_what_was_written(tmp_path: Path):
    path = tmp_path / "episodes.jsonl"
    plan = EpisodePlan(
        [toy_task(f"t{n}") for n in range(5)],
        epochs=2, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits(),
    )  # fmt: skip
    pool = ActorPool(ScriptedBackend([1], long_talk), PoolLimits(2, 2))
    with Ledger(path) as ledger:
        progress = Progress(io.StringIO(), time.monotonic)
        ended = run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
        assert [ledger.get(spec.key) for spec in plan] == list(ended)
        assert ledger.get(replace(plan[0].key, task="gone")) is None
    assert ended == read_episodes(path)
    assert ended[-1] == ended[9] == read_episodes(path)[9]
    assert ended[2:4] == read_episodes(path)[2:4]
    assert ended[:3] != ended
    assert [spec.key for spec in plan] == [episode.key for episode in ended]
    assert [spec.key for spec in plan[3:5]] == [plan[3].key, plan[4].key]
