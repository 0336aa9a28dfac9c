"""Plays one evaluation to its end: every episode without a score in its ledger, in a pool of threads or actors."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from lemur_ray.agents.external_calls import RegisteringFactory
from lemur_ray.agents.messages import Policy
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.agents.task_leases import WithLeases
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.discovery import find
from lemur_ray.rollout.benchmark_tasks import from_json, to_json
from lemur_ray.rollout.endpoints.evaluation_endpoints import environment_endpoints
from lemur_ray.rollout.evaluation_config import EvalConfig, Settings
from lemur_ray.rollout.evaluation_folder import (
    LEDGER,
    RUNNING,
    EvaluationError,
    clear_turns,
    other_code,
    remove_turns,
    save_settings,
)
from lemur_ray.rollout.ledger import Episodes, Ledger
from lemur_ray.rollout.progress import Progress, Suffix
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import Pool, ThreadPool


@dataclass(frozen=True)
class EvaluationPlan:
    """Tasks, policy and settings of an evaluation. ``policy``: its name in episode keys; ``out``: local folder of its
    ledger and settings."""

    config: EvalConfig[Any]
    tasks: Sequence[Task]
    policy: str
    settings: Settings
    out: Path
    departures: Sequence[str] = ()
    """Differences of the tasks on this machine from the original benchmark, recorded if anything is played."""
    plugin_metadata: Mapping[str, Mapping[str, Any]] | None = None
    """Metadata of an installed benchmark, stored with the run (``evaluation_folder.save_settings``)."""
    cluster: Callable[[Task], str] = attrgetter("cluster")
    """Function from a task to its group of dependent tasks, for confidence intervals."""

    @property
    def episodes(self) -> EpisodePlan:
        """All episodes of the run: tasks times epochs. Raises ValueError if two tasks have the same id."""
        return EpisodePlan(
            self.tasks,
            epochs=self.config.epochs,
            policy=self.policy,
            recipe=self.settings.hash,
            sampling=self.settings.sampling,
            limits=self.config.limits,
            turns=str(self.out / RUNNING),
        )

    def num_unsettled(self) -> int:
        """Number of episodes without a score in the ledger; all if there is no ledger yet. Opens the ledger for
        writing, which removes an incomplete last line. Raises LedgerError if it is damaged or another run writes to it,
        ValueError if two tasks have the same id."""
        episodes = self.episodes
        if not (self.out / LEDGER).is_file():
            return len(episodes)
        with Ledger(self.out / LEDGER) as ledger:
            return sum(not ledger.settled(spec.key) for spec in episodes)


def run_evaluation(
    plan: EvaluationPlan, make_pool: Callable[[], AbstractContextManager[Pool]], suffix: Suffix | None = None
) -> Episodes:
    """Play all episodes without a score in the ledger. Returns all episodes of the plan, read from the ledger's file.
    Raises EvaluationError without tasks, LedgerError, and the errors of ``run_episodes``. ``make_pool`` is called only
    if there is something to play: a finished evaluation starts no server and no Ray. ``suffix``: function that returns
    text for the end of the progress line."""
    config, clock = plan.config, time.monotonic
    print(f"writing to {plan.out}", file=sys.stderr, flush=True)
    if not plan.tasks:
        raise EvaluationError(f"{config.benchmark}: no tasks, so nothing to evaluate")
    episodes = plan.episodes
    with Ledger(plan.out / LEDGER) as ledger:
        finished = all(ledger.settled(spec.key) for spec in episodes)
        departures = () if finished else plan.departures  # nothing is played on this machine
        if not finished and (why := other_code(plan.out, plan.settings)):
            old = f"{why} in {plan.out}, which stay"
            print(f"{config.benchmark}: {old}: every task is played with the new code", file=sys.stderr, flush=True)
        save_settings(plan.out, plan.settings, to_json(config), _upgrade, departures, plan.plugin_metadata)
        if ledger.repaired:
            print(ledger.repaired, file=sys.stderr, flush=True)
        with contextlib.ExitStack() as stack:
            clear_turns(plan.out / RUNNING)  # files of a run that was killed
            stack.callback(remove_turns, plan.out / RUNNING)
            pool = None if finished else stack.enter_context(make_pool())
            every_s = math.inf if config.by_hand else 10.0
            progress = Progress(
                sys.stderr, clock, label=config.benchmark, every_s=every_s, prices=config.prices, suffix=suffix
            )
            return run_episodes(
                episodes, pool, ledger, retries=RetryPolicy(), progress=progress, clock=clock, cluster=plan.cluster
            )


def _upgrade(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored configuration (JSON) of any version in this version's form."""
    return to_json(from_json(stored))


def create_pool(config: EvalConfig[Any], policy: Callable[[], Policy], tasks: Sequence[Task] = ()) -> Pool:
    """The configuration's pool: threads of this process, or actors, which need a connected Ray. ``tasks``: those whose
    files actors on other hosts need. All actors share one limit of requests per endpoint, the policy's and those that
    environments call."""
    endpoints = environment_endpoints(config)
    if config.by_hand or not config.actors:
        return ThreadPool(RegisteringFactory(policy, endpoints)(), 1 if config.by_hand else config.in_flight)
    # Ray is imported only if actors are asked for.
    from lemur_ray.rollout.actors.on_ray import RayPool
    from lemur_ray.rollout.actors.pool import PoolLimits
    from lemur_ray.rollout.actors.task_lease_actor import RemoteLeases, start_lease_actor
    from lemur_ray.rollout.endpoints.endpoint_gate import SharedPlaces, start_gate

    gates = []
    if isinstance(policy, PolicySpec):
        if policy.traits.asks_endpoint:
            gates.append(start_gate())
            policy = policy.within(SharedPlaces(gates[-1]))
        policy = policy.without_files()
    limited = []
    for endpoint in endpoints:
        gates.append(start_gate())
        limited.append(endpoint.within(SharedPlaces(gates[-1])))
    make_policy: Callable[[], Policy] = RegisteringFactory(policy, tuple(limited))
    benchmark, lease_actor = find(config.benchmark), None
    if benchmark.details.uses_leases:
        lease_actor = start_lease_actor()
        make_policy = WithLeases(make_policy, RemoteLeases(lease_actor))
    return RayPool(
        make_policy,
        PoolLimits(config.actors, math.ceil(config.in_flight / config.actors)),
        each=benchmark.resources,
        cpus=config.actor_cpus,
        gates=gates,
        lease_actor=lease_actor,
        tasks=tasks,
    )
