"""One evaluation run to its end: everything that has no score yet in its ledger is played.

Gets tasks, a policy and a pool handed in; knows no benchmark, no server and no Ray.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from lemur_ray.agents.messages import Policy
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.evaluation_config import EvalConfig, Settings
from lemur_ray.rollout.evaluation_folder import EvaluationError, remember
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Prices, Progress
from lemur_ray.rollout.runner import Retries, plan_orders, run_orders
from lemur_ray.rollout.threads import NoPool, Pool, ThreadPool


def run_evaluation(
    config: EvalConfig,
    tasks: Sequence[Task],
    policy: str,
    settings: Settings,
    out: Path,
    make_pool: Callable[[], AbstractContextManager[Pool]],
) -> list[Episode]:
    """Play everything that has no score in the ledger in ``out``; the episodes of all tasks and epochs.

    ``make_pool`` is called only if there is something to play: a finished evaluation starts no server and no Ray.
    """
    if not tasks:
        raise EvaluationError(f"{config.benchmark}: no tasks, so nothing to evaluate")
    limits = EpisodeLimits(step_s=config.step_s, policy_s=config.reply_s)
    orders = plan_orders(
        tasks, epochs=config.epochs, policy=policy, recipe=settings.hash, sampling=settings.sampling, limits=limits
    )
    with Ledger(out / "episodes.jsonl") as ledger:
        remember(out, settings, config)
        if ledger.repaired:
            print(ledger.repaired, file=sys.stderr, flush=True)
        with contextlib.ExitStack() as stack:
            finished = all(ledger.settled(order.key) for order in orders)
            pool = NoPool() if finished else stack.enter_context(make_pool())
            prices = Prices(config.price_in, config.price_out)
            every_s = math.inf if config.by_hand else 10.0
            progress = Progress(sys.stderr, time.monotonic, label=config.benchmark, every_s=every_s, prices=prices)
            return run_orders(orders, pool, ledger, retries=Retries(), progress=progress, clock=time.monotonic)


def pool_of(config: EvalConfig, policy: Callable[[], Policy]) -> Pool:
    """The pool a configuration asks for; actors need a connected Ray."""
    if not config.num_actors:
        return ThreadPool(policy(), 1 if config.by_hand else config.in_flight)
    from lemur_ray.rollout.pool import RayPool  # the only road to Ray, taken only where actors are asked for

    per_actor = math.ceil(config.in_flight / config.actors)
    return RayPool(policy, num_actors=config.actors, episodes_per_actor=per_actor)
