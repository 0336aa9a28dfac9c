"""One evaluation run to its end: everything that has no score yet in its ledger is played.

Gets tasks, a policy and a pool handed in; knows no benchmark, no server and no Ray.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from pathlib import Path
from typing import Any

from lemur_ray.agents.external_calls import WithEndpoints
from lemur_ray.agents.messages import Policy
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.agents.task_leases import WithLeases
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.discovery import find
from lemur_ray.rollout.attempt import EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.benchmark_tasks import from_json, to_json
from lemur_ray.rollout.endpoints.evaluation_endpoints import environment_endpoints
from lemur_ray.rollout.evaluation_config import EvalConfig, Settings
from lemur_ray.rollout.evaluation_folder import EvaluationError, save_settings
from lemur_ray.rollout.ledger import Episodes, Ledger
from lemur_ray.rollout.progress import Progress, prices_of
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import EmptyPool, Pool, ThreadPool

Beside = Callable[[int, float], str]


def run_evaluation(
    config: EvalConfig[Any],
    tasks: Sequence[Task],
    policy: str,
    settings: Settings,
    out: Path,
    make_pool: Callable[[], AbstractContextManager[Pool]],
    departures: Sequence[str] = (),
    beside: Beside | None = None,
    cluster: Callable[[Task], str] = attrgetter("cluster"),
    told: Mapping[str, Mapping[str, Any]] | None = None,
) -> Episodes:
    """Play everything that has no score in the ledger in ``out``; the episodes of all tasks and epochs, in its file.

    ``departures``: from upstream's tasks on this machine, kept beside the settings where anything is played.
    ``beside``: says on the live line what this is a part of, given the episodes that have ended and their cost.
    ``cluster``: of a task, where the benchmark knows better than the task itself.
    ``told``: what the benchmark says of the run, kept where it is none of ours.
    ``make_pool`` is called only if there is something to play: a finished evaluation starts no server and no Ray.
    """
    print(f"writing to {out}", file=sys.stderr, flush=True)
    if not tasks:
        raise EvaluationError(f"{config.benchmark}: no tasks, so nothing to evaluate")
    plan = _orders(config, tasks, policy, settings)
    with Ledger(out / "episodes.jsonl") as ledger:
        finished = all(ledger.settled(spec.key) for spec in plan)
        said = () if finished else departures  # of a machine on which nothing was played
        save_settings(out, settings, to_json(config), lambda stored: to_json(from_json(stored)), said, told)
        if ledger.repaired:
            print(ledger.repaired, file=sys.stderr, flush=True)
        with contextlib.ExitStack() as stack:
            pool = EmptyPool() if finished else stack.enter_context(make_pool())
            prices = prices_of(config)
            every_s = math.inf if config.by_hand else 10.0
            progress = Progress(
                sys.stderr, time.monotonic, label=config.benchmark, every_s=every_s, prices=prices, beside=beside
            )
            clock = time.monotonic
            return run_episodes(
                plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=clock, cluster=cluster
            )


def is_finished(config: EvalConfig[Any], tasks: Sequence[Task], policy: str, settings: Settings, out: Path) -> bool:
    """Whether everything has a score in the ledger in ``out``, so that nothing needs to be there but that."""
    return not num_unsettled(config, tasks, policy, settings, out)


def num_unsettled(config: EvalConfig[Any], tasks: Sequence[Task], policy: str, settings: Settings, out: Path) -> int:
    """Episodes without a score in the ledger in ``out``."""
    plan = _orders(config, tasks, policy, settings)
    if not (out / "episodes.jsonl").is_file():
        return len(plan)
    with Ledger(out / "episodes.jsonl") as ledger:
        return sum(not ledger.settled(spec.key) for spec in plan)


def _orders(config: EvalConfig[Any], tasks: Sequence[Task], policy: str, settings: Settings) -> Sequence[EpisodeSpec]:
    limits = EpisodeLimits(
        step_s=config.step_s,
        policy_s=config.reply_s,
        tokens=config.episode_tokens,
        time_s=config.episode_s,
        cost=config.episode_cost,
        price_in=config.price_in,
        price_out=config.price_out,
    )
    return EpisodePlan(
        tasks, epochs=config.epochs, policy=policy, recipe=settings.hash, sampling=settings.sampling, limits=limits
    )


def pool_of(config: EvalConfig[Any], policy: Callable[[], Policy], tasks: Sequence[Task] = ()) -> Pool:
    """The pool a configuration asks for; actors need a connected Ray. ``tasks``: as of ``RayPool``.

    What asks an endpoint, the policy or whoever environments ask, does so within one limit for all actors.
    """
    outside = environment_endpoints(config)
    if not config.num_actors:
        return ThreadPool(WithEndpoints(policy, outside)(), 1 if config.by_hand else config.in_flight)
    from lemur_ray.rollout.actors.on_ray import RayPool
    from lemur_ray.rollout.actors.task_lease_actor import (  # the only roads to Ray, taken only where
        RemoteLeases,
        start_lease_actor,
    )
    from lemur_ray.rollout.endpoints.endpoint_gate import SharedPlaces, start_gate  # actors are asked for

    gates = []
    if isinstance(policy, PolicySpec):
        if policy.asks_endpoint:
            gates.append(start_gate())
            policy = policy.within(SharedPlaces(gates[-1]))
        policy = policy.without_files()
    shared = []
    for endpoint in outside:
        gates.append(start_gate())
        shared.append(endpoint.within(SharedPlaces(gates[-1])))
    per_actor = math.ceil(config.in_flight / config.actors)
    equipped: Callable[[], Policy] = WithEndpoints(policy, tuple(shared))
    benchmark, keeper = find(config.benchmark), None
    if benchmark.details.uses_leases:
        keeper = start_lease_actor()
        equipped = WithLeases(equipped, RemoteLeases(keeper))
    return RayPool(
        equipped,
        num_actors=config.actors,
        episodes_per_actor=per_actor,
        each=benchmark.resources,
        cpus=config.actor_cpus,
        gates=gates,
        keeper=keeper,
        tasks=tasks,
    )
