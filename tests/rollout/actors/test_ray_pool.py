"""A run in Ray actors: what threads play is played, and what becomes of actors that die, hang, or never start."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.core.generated.common_pb2 import ActorDiedErrorContext  # type: ignore[attr-defined]
from ray.exceptions import ActorDiedError, ActorUnavailableError

from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.benchmarks.resource_request import COMMANDS, PROCESS
from lemur_ray.rollout.actors.on_ray import RayPool, went_with_host
from lemur_ray.rollout.actors.pool import PoolLimits
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import PoolBroken, ThreadPool
from tests.rollout.test_runner import QUICK, run
from tests.rollout.toy import SlowExpert, WrongPolicy, toy_task


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


@pytest.fixture
def ray_pool(ray_local: str) -> Iterator[Callable[..., RayPool]]:
    pools: list[RayPool] = []

    def make(policy: Any = ExpertPolicy, each: Any = None, cpus: float = 0.0, **limits: Any) -> RayPool:
        size = PoolLimits(**{"num_actors": 2, "episodes_per_actor": 10, **limits})
        pools.append(RayPool(policy, size, each=each, cpus=cpus))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def held_by(actor: Any) -> dict[str, float]:
    """What Ray gave to an actor."""
    ask = actor.__ray_call__.remote(lambda self: ray.get_runtime_context().get_assigned_resources())
    found: dict[str, float] = ray.get(ask, timeout=60)
    return found


def test_actors_play_what_threads_play(ray_pool: Any, path: Path, tmp_path: Path):
    tasks = [toy_task(f"t{i}") for i in range(30)] + [toy_task("bad", reset="raise")]
    pool = ray_pool(each=COMMANDS, cpus=0.25)
    assert next(held_by(member.actor._handle) for member in pool._membership if member.pid) == {
        "CPU": 0.25, "memory": PROCESS.memory_bytes + 10 * COMMANDS.memory_bytes,
    }  # fmt: skip
    in_actors = run(pool, tasks, path)
    in_threads = run(ThreadPool(ExpertPolicy(), 4), tasks, tmp_path / "other.jsonl")

    def essence(episode: Episode) -> Any:
        steps = [(s.reply, s.action, s.observation, s.reward) for s in episode.trajectory.steps]
        return episode.key, episode.outcome, episode.score, episode.attempts, episode.trajectory.opening, steps

    assert [essence(e) for e in in_actors] == [essence(e) for e in in_threads]


def test_a_pool_goes_on_with_another_policy_in_the_same_actors(ray_pool: Any, path: Path, tmp_path: Path):
    pool = ray_pool(WrongPolicy, num_actors=1)
    assert {e.outcome for e in run(pool, [toy_task("a")], path)} != {Outcome.SOLVED}
    pids = pool.pids
    pool.change_policy(ExpertPolicy)
    assert {e.outcome for e in run(pool, [toy_task("b")], tmp_path / "next.jsonl")} == {Outcome.SOLVED}
    assert pool.pids == pids


def test_episodes_of_an_actor_that_dies_are_played_elsewhere(ray_pool: Any, path: Path, tmp_path: Path):
    tasks = [toy_task(f"t{i}") for i in range(20)]
    tasks[3] = toy_task("killer", step="kill once", mark=str(tmp_path / "mark"))
    episodes = run(ray_pool(), tasks, path)
    assert all(e.outcome is Outcome.SOLVED for e in episodes)
    killer = next(e for e in episodes if e.key.task == "killer")
    assert killer.attempts == 2
    assert "attempt 1: infra_lost: actor lost" in killer.retried[0]
    assert not went_with_host(killer.retried[0]), "the process alone, in words that are known"
    assert all(e.attempts <= 2 for e in episodes)


def test_whatever_ray_does_not_call_the_end_of_a_process_went_with_its_host():
    said = ["The actor died because its node has died. Node Id: 1", "dead because its worker process has died. Worker"]
    errors = [ActorDiedError(ActorDiedErrorContext(actor_id=b"1" * 16, error_message=message)) for message in said]
    assert [went_with_host(error) for error in errors] == [True, False]
    assert went_with_host(ActorUnavailableError("reset", b"1" * 16))


def test_actors_that_always_die_end_the_run_with_what_was_finished_kept(ray_pool: Any, path: Path):
    def kill(pool: RayPool) -> None:
        for pid in pool.pids:
            os.kill(pid, signal.SIGKILL)

    pool = ray_pool(SlowExpert, num_actors=1, max_deaths=0, quiet_s=0.0)
    kill(pool)
    with pytest.raises(PoolBroken, match="actors died 1 times in a row"):
        run(pool, [toy_task("t0")], path)
    assert path.read_bytes() == b""
    assert run(ThreadPool(ExpertPolicy(), 1), [toy_task("t0")], path)[0].outcome is Outcome.SOLVED


def test_an_actor_full_of_calls_that_hang_is_replaced(ray_pool: Any, path: Path):
    pool = ray_pool(num_actors=1, episodes_per_actor=4, max_stuck=2)
    tasks = [toy_task(f"h{i}", step="hang") for i in range(2)]
    before = pool.pids
    episodes = run(pool, tasks, path, limits=QUICK, retries=RetryPolicy(env=0))
    assert [e.outcome for e in episodes] == [Outcome.ENV_ERROR] * 2
    assert run(pool, [toy_task("t")], path)[0].outcome is Outcome.SOLVED
    assert len(pool.pids) == 1
    assert pool.pids != before


def test_actors_that_cannot_start_say_why(ray_pool: Any):
    def broken() -> Any:
        raise RuntimeError("no such policy")

    with pytest.raises(PoolBroken, match="no such policy"):
        ray_pool(broken, num_actors=1)
