"""Training and held-out tasks of a benchmark, and the evaluation plans by which rounds and evaluations are played."""

import hashlib
import typing
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.needs import missing_requirements
from lemur_ray.improve.config import BadInput, ImproveConfig
from lemur_ray.rollout.attempt import derive_seed
from lemur_ray.rollout.benchmark_tasks import available_tasks, evaluation_request
from lemur_ray.rollout.evaluation import EvaluationPlan
from lemur_ray.rollout.evaluation_config import EvalConfig, settings_of
from lemur_ray.rollout.schedule.task_selection import keep_dependencies, named_tasks

Config = EvalConfig[Any]


@dataclass(frozen=True)
class TaskSet:
    """Tasks of one kind, training or held out, and the evaluation configuration that loads them."""

    config: Config
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class TaskSets:
    """The tasks that a run trains on and those that it is measured on; no task is in both."""

    training: TaskSet
    held_out: TaskSet

    def round_plan(self, config: ImproveConfig, number: int, policy: str, out: Path) -> EvaluationPlan:
        """Plan of the training episodes of round ``number``, from 1, which begin where the last round's tasks ended;
        after the last task the first one follows. policy: its name in episode keys. out: folder of the round's
        ledger."""
        known, count = self.training.tasks, min(config.games, len(self.training.tasks))
        first = (number - 1) * config.games
        chosen = [known[(first + i) % len(known)] for i in range(count)]
        seed = derive_seed("improve", config.recipe.train.seed, number)
        play = replace(self.training.config, epochs=config.epochs, temperature=config.temperature, seed=seed)
        return _plan(replace(self.training, config=play), chosen, policy, out)

    def evaluation_plan(self, policy: str, out: Path) -> EvaluationPlan:
        """Plan of a greedy evaluation on the held-out tasks. policy: name of the policy in the episodes' keys; out:
        folder of its ledger."""
        return _plan(self.held_out, self.held_out.tasks, policy, out)


def task_sets(config: ImproveConfig) -> TaskSets:
    """The tasks of a configuration. Raises BadInput if the benchmark has no teacher that is needed, no training tasks,
    or if a task would be both trained and held out; ValueError, OSError for data that are missing."""
    benchmark = find(config.benchmark)
    if config.teaches and not benchmark.has_hints:
        flag = "--control" if config.control else "--algorithm teacher"
        raise BadInput(f"{flag}: {config.benchmark} has no expert: use --algorithm wins without --control")
    count = config.first_task + config.rounds * config.games
    training = _load(config, benchmark, "train", count)
    held_out = _load(config, benchmark, "heldout", config.eval_games)
    tasks = training.tasks, held_out.tasks
    if config.train_tasks:
        tasks = _named(config.train_tasks, training), _named(config.eval_tasks, held_out)
    elif not _has_split(benchmark):
        tasks = _groups(config.benchmark, benchmark, training.tasks)
    chosen = tasks[0][config.first_task :], tasks[1][: config.eval_games]
    if shared := {task.id for task in chosen[0]} & {task.id for task in chosen[1]}:
        raise BadInput(f"task {min(shared)} of {config.benchmark} is held out: it is never trained on")
    if not all(chosen):
        raise BadInput(
            f"{config.benchmark}: {len(chosen[0])} training and {len(chosen[1])} held-out tasks (--first-task "
            f"{config.first_task}): expected at least one of each"
        )
    return TaskSets(replace(training, tasks=chosen[0]), replace(held_out, tasks=chosen[1]))


def _load(config: ImproveConfig, benchmark: Benchmark[Any], split: str, count: int) -> TaskSet:
    """Tasks of a split, or all tasks of a benchmark without splits. count: how many a generator makes at most."""
    options = benchmark.options(**({"split": split} if _has_split(benchmark) else {}))
    limit = count if benchmark.default_limit else 0
    load: Config = EvalConfig(
        options, config.benchmark, "handle", data=config.data, limit=limit, sample="first",
        in_flight=config.in_flight, actors=config.actors,
    )  # fmt: skip
    request = evaluation_request(load, benchmark, "brief")
    if problems := missing_requirements(benchmark.requirements(options, request)):
        raise BadInput("; ".join(problems))
    return TaskSet(load, tuple(available_tasks(load, benchmark, request)))


def _has_split(benchmark: Benchmark[Any]) -> bool:
    kind = typing.get_type_hints(benchmark.options).get("split")
    return {"train", "heldout"} <= set(typing.get_args(kind))


def _named(text: str, known: TaskSet) -> tuple[Task, ...]:
    try:
        return tuple(named_tasks(known.tasks, text))
    except ValueError as error:
        raise BadInput(str(error)) from error


def _groups(name: str, benchmark: Benchmark[Any], tasks: Sequence[Task]) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """(training tasks, held-out tasks): whole groups of dependent tasks, every second one in the order of a hash."""
    group_of = benchmark.details.cluster
    groups = sorted({group_of(task) for task in tasks}, key=lambda one: hashlib.blake2b(one.encode()).digest())
    if len(groups) < 2:
        raise BadInput(f"{name} has no split train and no groups of tasks: give --train-tasks and --eval-tasks")
    trained = set(groups[::2])
    return (
        tuple(task for task in tasks if group_of(task) in trained),
        tuple(task for task in tasks if group_of(task) not in trained),
    )


def _plan(known: TaskSet, tasks: Sequence[Task], policy: str, out: Path) -> EvaluationPlan:
    play = known.config
    benchmark = find(play.benchmark)
    identity = benchmark.identity_of(play.options, evaluation_request(play, benchmark, "brief"), play.replay)
    settings = settings_of(play, "brief", benchmark.max_tokens["brief"], tasks, identity, benchmark.stop)
    stored = replace(play, out=str(out), tasks=",".join(task.id for task in tasks))
    chosen = keep_dependencies(tasks, known.tasks)
    return EvaluationPlan(stored, chosen, policy, settings, out, cluster=benchmark.details.cluster)
