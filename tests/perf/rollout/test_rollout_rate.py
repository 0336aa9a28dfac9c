"""300 episodes in flight against a policy of one second of latency: rate and memory. By name, on a quiet machine.

``python -m pytest tests/perf/rollout/test_rollout_rate.py -s``
"""

import io
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from envs.intercode.sql.sample_database import build_sample
from envs.intercode.sql.tasks import load_sql_tasks
from lemur_ray.agents.messages import Policy, Sampling
from lemur_ray.agents.trajectory import Task
from lemur_ray.rollout.actors.on_ray import RayPool
from lemur_ray.rollout.actors.pool import PoolLimits
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import Pool, ThreadPool
from tests.e2e.processes import descendants
from tests.perf.rollout.slow_policies import Slow, Waiting
from tests.rollout.toy import toy_task

TURNS, IN_FLIGHT, EPISODES = 10, 300, 600


def toy_world(tmp_path: Path) -> tuple[list[Task], tuple[str, ...]]:
    return [toy_task(f"t{i}", length=TURNS, max_turns=TURNS) for i in range(EPISODES)], ("right",)


def sql_world(tmp_path: Path) -> tuple[list[Task], tuple[str, ...]]:
    known = load_sql_tasks(None, database=build_sample(tmp_path / "sample.sqlite"))
    tasks = [
        Task(t.benchmark, f"t{i}", t.env_id, t.category, {**t.options, "max_steps": TURNS}, TURNS)
        for i, t in enumerate(known[i % len(known)] for i in range(EPISODES))
    ]
    looks = ("SHOW TABLES", "DESCRIBE packages", "SELECT name, version FROM packages ORDER BY name LIMIT 7", "Hm.")
    return tasks, (*looks, "SELECT 1, 2, name FROM packages LIMIT 50")


def pool_of(where: str, policy: Callable[[], Policy]) -> Pool:
    per_actor = IN_FLIGHT // 2
    return (
        ThreadPool(policy(), IN_FLIGHT)
        if where == "threads"
        else RayPool(policy, PoolLimits(num_actors=2, episodes_per_actor=per_actor))
    )


@pytest.mark.parametrize("where", ["threads", "actors"])
@pytest.mark.parametrize("world", [toy_world, sql_world])
def test_three_hundred_episodes_in_flight_reach_ninety_percent_of_the_ideal_rate(
    ray_local: str, tmp_path: Path, where: str, world: Any
):
    tasks, replies = world(tmp_path)
    pool = pool_of(where, partial(Slow, replies))
    plan = EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())
    started = time.monotonic()
    with Ledger(tmp_path / "episodes.jsonl") as ledger:
        progress = Progress(io.StringIO(), time.monotonic)
        episodes = run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
    took = time.monotonic() - started
    pool.close()
    turns = sum(len(e.trajectory.steps) for e in episodes)
    ideal_s = max(len(e.trajectory.steps) for e in episodes)
    share = (turns / took) / IN_FLIGHT
    print(f"{world.__name__}, {where}: {turns} turns in {took:.2f} s, {turns / took:.0f}/s, {share:.0%} of the ideal")
    assert all(e.outcome.scored and e.attempts == 1 for e in episodes)
    assert (turns, ideal_s) == (EPISODES * TURNS, TURNS)
    assert share >= 0.9


def pss_bytes(pid: int) -> int:
    """Memory of a process, what it shares with others counted in part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no Pss of {pid}")


def all_of(pids: list[int]) -> int:
    """Of processes with episodes in them, and of the processes there that run queries."""
    below = {child: line for pid in pids for child, line in descendants(pid).items()}
    return sum(pss_bytes(pid) for pid in (*pids, *(child for child, line in below.items() if "sqlite_worker" in line)))


@pytest.mark.parametrize("where", ["threads", "actors"])
def test_an_idle_episode_in_flight_costs_less_than_three_megabytes(ray_local: str, tmp_path: Path, where: str):
    tasks, replies = sql_world(tmp_path)
    pool = pool_of(where, partial(Waiting, tmp_path, replies))
    while pool.capacity < IN_FLIGHT:  # it begins with the first actor that runs
        assert pool.collect(1.0) == []
    pids = pool.pids if isinstance(pool, RayPool) else [os.getpid()]
    plan = EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())

    def asked() -> int:
        return sum(int(path.read_text() or 0) for path in tmp_path.glob("asked-*"))

    def waiting_for(number: int) -> None:
        deadline = time.monotonic() + 120
        while asked() < number:
            assert time.monotonic() < deadline, f"only {asked()} of {number} episodes wait"
            time.sleep(0.1)

    # The first episodes pay for what all share: modules, the processes that run queries.
    for spec in plan[:8]:
        pool.submit(spec)
    waiting_for(8)
    before = all_of(pids)
    for spec in plan[8:IN_FLIGHT]:
        pool.submit(spec)
    waiting_for(IN_FLIGHT)
    each_mb = (all_of(pids) - before) / (IN_FLIGHT - 8) / 2**20
    (tmp_path / "go").touch()
    ended = 0
    while ended < IN_FLIGHT:
        ended += len(pool.collect(5.0))
    pool.close()
    print(f"{where}: {each_mb:.2f} MB for each idle episode in flight")
    assert each_mb < 3.0
