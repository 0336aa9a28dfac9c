"""Gold check: plays a benchmark's reference answers (golds) in its environment, and names each that does not score 1,
and each question whose prompt holds its own answer or a hidden test.

The expert policy supplies the answers: a question's gold, a game's plan. Episodes are not stored."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.benchmarks.discovery import find, names
from lemur_ray.benchmarks.needs import missing_requirements
from lemur_ray.benchmarks.task_validation import validated_tasks
from lemur_ray.evaluation.preflight import prepare
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.benchmark_tasks import (
    arguments_for,
    evaluation_request,
    option_names,
    parse_evaluation,
    parse_one_of_many,
)
from lemur_ray.rollout.evaluation import create_pool
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy

FLAG = "--check-gold"
MIN_SECRET_CHARS, MIN_SECRET_WORDS = 30, 6
"""Length from which a gold reply in its own prompt is a leak."""
NO_GOLD = "declares no gold: neither an expert nor a task with one"
_MAX_REASON_CHARS = 300
"""Maximum characters of the reason in a line of the check."""
Print = Callable[[str], None]


def check_golds(words: Sequence[str], report: Print) -> int:
    """Run ``--check-gold [--benchmark NAME]`` with flags of an evaluation; without a name for all benchmarks. Returns
    exit code 0, or 1 if an answer does not score 1 or is in its task's prompt (``leak_lines``). A named benchmark that
    cannot be played or has no answers is an error; in a check of all it is only reported. ``report``: prints a line.
    ``words``: those flags."""
    rest = [word for word in words if word != FLAG]
    if any(word.partition("=")[0] in ("--benchmark", "--config") for word in rest):
        return int(not _is_right(parse_evaluation(rest, ""), report))
    wrong = 0
    flags = dict(_flags(list(names()), report))
    every = {flag for of in flags.values() for flag in of}
    for name, own in flags.items():
        try:
            config, benchmark = parse_one_of_many(arguments_for(rest, own, every), name), find(name)
        except ValueError as error:
            report(f"{name}: not checked: {error}")
            continue
        if problems := missing_requirements(
            benchmark.requirements(config.options, evaluation_request(config, benchmark, "full"))
        ):
            report(f"{name}: not checked: {'; '.join(problems)}")
        elif has_golds(config, benchmark):
            wrong += not _is_right(config, report)
        else:
            report(f"{name}: not checked: {NO_GOLD}")
    return int(wrong > 0)


def _flags(every: Sequence[str], report: Print) -> Iterator[tuple[str, set[str]]]:
    """Yield (benchmark, names of its options). Reports each one skipped because its options cannot be flags."""
    for name in every:
        try:
            yield name, option_names(name)
        except ValueError as error:
            report(f"{name}: not checked: {error}")


def _is_right(config: EvalConfig[Any], report: Print) -> bool:
    benchmark = find(config.benchmark)
    if not has_golds(config, benchmark):
        raise ValueError(f"{FLAG}: {config.benchmark} {NO_GOLD}")
    episodes = play_golds(config, benchmark)
    wrong = list(failure_lines(episodes))
    leaking = [*leak_lines(episodes)]
    for line in (*leaking, *wrong):
        report(line)
    report(f"{config.benchmark}: {len(episodes)} golds, {len(episodes) - len(wrong)} score 1")
    return not wrong and not leaking


def has_golds(config: EvalConfig[Any], benchmark: Benchmark[Any]) -> bool:
    """Whether the benchmark has an expert policy, or (it loads them) a task with a reply that must score 1."""
    if benchmark.has_hints:
        return True
    asked = evaluation_request(config, benchmark, "full")
    tasks = validated_tasks(config.benchmark, lambda: benchmark.load(config.options, asked))
    return any("gold" in task.options for task in tasks)


def play_golds(config: EvalConfig[Any], benchmark: Benchmark[Any]) -> list[Episode]:
    """Play the benchmark's reference answers in this process. Returns the episodes. Raises PreflightError if a
    requirement of the benchmark is missing here."""
    with tempfile.TemporaryDirectory(prefix="lemur-golds-") as folder:
        config = replace(config, policy="expert", actors=0, out=folder)
        ready = prepare(config, replace(benchmark, has_hints=True), lambda spec: spec)
        tasks = [task for task in ready.tasks if benchmark.has_hints or "gold" in task.options]
        with Ledger(Path(folder) / "episodes.jsonl") as ledger, closing(create_pool(config, ready.policy)) as pool:
            clock, settings, limits = time.monotonic, ready.settings, EpisodeLimits(step_s=config.step_s)
            names = {"policy": ready.policy.label, "recipe": settings.hash}
            plan = EpisodePlan(tasks, epochs=1, **names, sampling=settings.sampling, limits=limits)
            progress = Progress(sys.stderr, clock, label=config.benchmark)
            return list(run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=clock))


def leak_lines(episodes: Sequence[Episode]) -> Iterator[str]:
    """Yield a line for each task whose first prompt contains a reference reply of one of its turns, and for each
    single-turn question that is itself a worked example before it. Short ones (a letter, yes) are not checked."""
    for episode in episodes:
        steps, opening = episode.trajectory.steps, episode.trajectory.opening
        if not steps or not opening:
            continue
        whole = "".join(message.content for message in opening)
        first = episode.trajectory.shared or len(whole) - len(opening[-1].content)
        prompt, examples, question = (" ".join(text.split()) for text in (whole, whole[:first], whole[first:]))
        golds = (" ".join(step.reply.split()) for step in steps)
        secrets = (gold for gold in golds if len(gold) >= MIN_SECRET_CHARS and len(gold.split()) >= MIN_SECRET_WORDS)
        if leaked := next((gold for gold in secrets if gold in prompt), ""):
            yield f"{episode.key.task}: leaked: its prompt contains the gold: {leaked[:_MAX_REASON_CHARS]}"
        elif len(steps) == 1 and len(question) >= MIN_SECRET_CHARS and question in examples:
            yield f"{episode.key.task}: leaked: a worked example is its own question: {question[:_MAX_REASON_CHARS]}"


def failure_lines(episodes: Sequence[Episode]) -> Iterator[str]:
    """Yield a line with task, score and reason for each episode that does not score 1."""
    for episode in episodes:
        if episode.score == 1:
            continue
        worth = "not graded" if episode.score is None else f"scores {episode.score:g}"
        steps = episode.trajectory.steps
        why = episode.detail if episode.score is None or not steps else steps[-1].observation
        yield f"{episode.key.task}: {worth}: {' '.join(why.split())[:_MAX_REASON_CHARS]}"
