"""The stand-in suite in a real browser: an expert solves it, random clicks do not."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from envs.webarena.sites import standin_env
from envs.webarena.sites.benchmark_standin import STANDIN, StandinOptions
from envs.webarena.sites.software import SOFTWARE
from envs.webarena.sites.standin_env import StandinEnv
from envs.webarena.sites.suite.records import records, software_of
from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import replay_episodes, run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool
from tests.envs.webarena.sites.conftest import installed, shared

PLAYING = {"seed": 17, "copies": 1, "wait_s": 0.3, "settles_s": 0.3, "prompt": "brief", "hints": True}


@pytest.fixture(scope="module")
def env(browser: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandinEnv]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEMUR_HOME", str(shared(tmp_path_factory)))
        standin_env.standin_sites.cache_clear()
        made = StandinEnv()
        yield made
        made.close()
        standin_env.standin_sites(1, 17).close()
        standin_env.standin_sites.cache_clear()


def begun(env: StandinEnv, record: Mapping[str, Any]) -> dict[str, Any]:
    for name in software_of(dict(record)):
        installed(name)
    return env.reset(seed=1, options={"record": record, **PLAYING})[1]


def by_expert(env: StandinEnv, record: Mapping[str, Any]) -> float:
    info = begun(env, record)
    ended = False
    while not ended:
        _, _, terminated, truncated, info = env.step(info["hints"]["expert"])
        ended = terminated or truncated
    return float(info["score"])


def sample() -> list[dict[str, Any]]:
    """The last task of each application: those that change something."""
    last = {record["sites"][0]: record for record in records()}
    return list(last.values())


@pytest.mark.slow
@pytest.mark.parametrize("record", sample(), ids=lambda record: record["sites"][0])
def test_the_expert_solves_the_last_task_of_each_site_twice(env: StandinEnv, record: dict[str, Any]) -> None:
    assert [by_expert(env, record) for _ in range(2)] == [1, 1], "the second time it begins where the first began"


@pytest.mark.sweep
@pytest.mark.parametrize("record", records(), ids=lambda record: f"{record['task_id']}-{record['sites'][0]}")
def test_the_expert_solves_every_task(env: StandinEnv, record: dict[str, Any]) -> None:
    assert by_expert(env, record) == 1


@pytest.mark.sweep
def test_who_clicks_at_random_solves_next_to_nothing(env: StandinEnv) -> None:
    draw, scores = random.Random(1), []
    for record in records()[::6]:
        info, ended = begun(env, record), False
        while not ended:
            _, _, terminated, truncated, info = env.step(draw.choice(info["hints"]["admissible"]))
            ended = terminated or truncated
        scores.append(info["score"])
    assert sum(scores) <= 1, scores


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_what_the_expert_said_is_solved_again_when_it_is_said_again(env: StandinEnv, tmp_path: Path) -> None:
    """As it is before it is exported: ids are other ones, what is acted on is found by its words."""
    for name in SOFTWARE:
        installed(name)
    tasks = list(STANDIN.load(StandinOptions(site_copies=1), EvaluationRequest(prompt="brief")))[::3]
    limits = EpisodeLimits(reset_s=600.0)
    plan = EpisodePlan(tasks, epochs=1, policy="expert", recipe="r", sampling=Sampling(), limits=limits)
    with Ledger(tmp_path / "episodes.jsonl") as ledger:
        progress, pool = Progress(io.StringIO(), time.monotonic), ThreadPool(ExpertPolicy(), 5)
        episodes = list(
            run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
        )
    assert {one.outcome for one in episodes} == {Outcome.SOLVED}
    played = [(one, STANDIN.details.restored_task(task, one)) for one, task in zip(episodes, tasks, strict=True)]
    again = replay_episodes(played, in_flight=5)
    assert not [key.task for key, outcome in again.items() if outcome is not Outcome.SOLVED]
