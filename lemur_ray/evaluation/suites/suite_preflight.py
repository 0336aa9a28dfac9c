"""Preflight of a suite: checks all its benchmarks before any is played, and reports all problems in one list.

Starts no Ray and sends no paid request (``lemur_ray/evaluation/preflight.py``)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.needs import exit_code_of_problems
from lemur_ray.evaluation.preflight import PreflightError, Prepared, prepare
from lemur_ray.evaluation.suites.command_line import Suite
from lemur_ray.evaluation.suites.tables import Part
from lemur_ray.rollout.evaluation import EvaluationPlan
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.evaluation_folder import EvaluationError, prepare_out
from lemur_ray.rollout.ledger import LedgerError


@dataclass(frozen=True)
class PreparedPart:
    """A benchmark of a suite that has passed its preflight. ``num_episodes``: number of its episodes; ``num_left``: of
    those without a score."""

    part: Part
    config: EvalConfig[Any]
    prepared: Prepared
    num_episodes: int
    num_left: int


def prepare_suite(suite: Suite, attach: Callable[[PolicySpec], PolicySpec]) -> list[PreparedPart]:
    """Run the preflight of every part. ``attach``: adds to a policy the application that already serves it. Raises
    EvaluationError with every problem and the benchmarks that have it."""
    prepared_parts: list[PreparedPart] = []
    problems: dict[str, list[str]] = {}
    prepare_out(suite.out)
    for part, config in suite.parts:
        try:
            ready = prepare(config, find(part.benchmark), attach)
        except PreflightError as error:
            for problem in error.problems:
                problems.setdefault(problem, []).append(part.shown)
            continue
        except (EvaluationError, LedgerError, ValueError, OSError) as error:
            problems.setdefault(str(error), []).append(part.shown)
            continue
        left = EvaluationPlan(config, ready.tasks, ready.policy.label, ready.settings, ready.out).num_unsettled()
        prepared_parts.append(PreparedPart(part, config, ready, len(ready.tasks) * config.epochs, left))
    if problems:
        lines = [f"{', '.join(names)}: {problem}" for problem, names in problems.items()]
        hint = "Nothing was played. --without NAME,... leaves benchmarks out"
        refusal = EvaluationError("\n- ".join([f"{suite.name} is not begun:", *lines]) + f"\n{hint}")
        refusal.exit_code = exit_code_of_problems(problems)
        raise refusal
    return prepared_parts
