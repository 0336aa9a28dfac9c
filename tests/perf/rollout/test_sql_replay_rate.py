"""Steps per second of a replay of InterCode-SQL end to end through the pool; run by name, on a quiet machine.

``python -m pytest tests/perf/rollout/test_sql_replay_rate.py -s``
"""

import io
import time
from pathlib import Path

import pytest

from envs.intercode.recording import read_recording, recorded_tasks, recorded_with
from envs.intercode.sql.tasks import load_spider_tasks
from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.rollout.actors.on_ray import RayPool
from lemur_ray.rollout.actors.pool import PoolLimits
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import Pool, ThreadPool

LOG = "intercode/logs/sql/gpt-3.5/ic_sql_multiturn_gpt-3.5_10_turns_handicap.json.gz"


@pytest.mark.parametrize("where", ["threads", "actors"])
def test_a_replay_takes_at_least_150_steps_a_second(ray_local: str, data_dir: Path, tmp_path: Path, where: str):
    path = data_dir / LOG
    policy = PolicySpec.parse(f"replay:{path}", recordings=recorded_with())
    tasks = recorded_tasks(
        load_spider_tasks(data_dir, scratch=tmp_path, compat=True), read_recording(path), path, "strict"
    )
    pool: Pool = (
        ThreadPool(policy(), 16)
        if where == "threads"
        else RayPool(policy, PoolLimits(num_actors=2, episodes_per_actor=8))
    )
    plan = EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())
    started, spent = time.monotonic(), time.process_time()
    with Ledger(tmp_path / "episodes.jsonl") as ledger:
        progress = Progress(io.StringIO(), time.monotonic)
        episodes = run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
    took, spent = time.monotonic() - started, time.process_time() - spent
    pool.close()
    steps = sum(len(episode.trajectory.steps) for episode in episodes)
    print(f"{where}: {steps} steps in {took:.1f} s = {steps / took:.0f} steps/s ({spent:.1f} s of this process's CPU)")
    assert steps / took >= 150
