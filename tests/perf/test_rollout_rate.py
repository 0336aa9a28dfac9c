"""Rate of 300 episodes in flight against a policy of one second of latency; run by name, on a quiet machine.

``python -m pytest tests/perf/test_rollout_rate.py -s``
"""

import io
import time
from pathlib import Path

import pytest

from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.rollout.attempt import Limits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.pool import RayPool
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import Retries, plan_orders, run_orders
from lemur_ray.rollout.threads import Pool, ThreadPool
from tests.rollout.toy import SlowExpert, toy_task

TURNS = 10


@pytest.mark.parametrize("where", ["threads", "actors"])
def test_three_hundred_episodes_in_flight_reach_ninety_percent_of_the_ideal_rate(
    ray_local: str, tmp_path: Path, where: str
):
    pool: Pool = (
        ThreadPool(SlowExpert(1.0), 300)
        if where == "threads"
        else RayPool(SlowExpert, num_actors=2, episodes_per_actor=150)
    )
    tasks = [toy_task(f"t{i}", length=TURNS, max_turns=TURNS) for i in range(300)]
    orders = plan_orders(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=Limits())
    started = time.monotonic()
    with Ledger(tmp_path / "episodes.jsonl") as ledger:
        progress = Progress(io.StringIO(), time.monotonic)
        episodes = run_orders(orders, pool, ledger, retries=Retries(), progress=progress, clock=time.monotonic)
    took = time.monotonic() - started
    pool.close()
    print(f"{where}: {took:.2f} s for {TURNS} s of latency, {300 * TURNS / took:.0f} turns/s")
    assert all(e.outcome is Outcome.SOLVED for e in episodes)
    assert TURNS / took >= 0.9
