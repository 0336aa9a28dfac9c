"""Preflight of a suite: checks all its benchmarks before any is played, and reports all problems in one list.

Starts no Ray and sends no paid request (``lemur_ray/evaluation/preflight.py``)."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.benchmarks.data_sets import FilesByProblem, files_to_fetch, how_to_fetch
from lemur_ray.benchmarks.discovery import find, offers
from lemur_ray.benchmarks.needs import exit_code_of_problems
from lemur_ray.evaluation.preflight import PreflightError, Prepared, prepare
from lemur_ray.evaluation.suites.command_line import Suite
from lemur_ray.evaluation.suites.tables import Part
from lemur_ray.host.home import outside_data
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
    """Create the suite's folder and run the preflight of every part. ``attach``: adds to a policy the application that
    already serves it. Raises EvaluationError with every problem and the benchmarks that have it."""
    prepared_parts: list[PreparedPart] = []
    problems: dict[str, list[str]] = {}
    files: dict[str, FilesByProblem] = {}
    prepare_out(suite.out)
    for part, config in suite.parts:
        benchmark = find(part.benchmark)
        try:
            ready = prepare(config, benchmark, attach)
        except PreflightError as error:
            about_files = files_to_fetch(benchmark, outside_data(config.data), error.problems)
            files[part.benchmark] = {**files.get(part.benchmark, {}), **about_files}
            for problem in error.problems:
                problems.setdefault(problem, []).append(part.shown)
            continue
        except (EvaluationError, LedgerError, ValueError, OSError) as error:
            problems.setdefault(str(error), []).append(part.shown)
            continue
        left = EvaluationPlan(config, ready.tasks, ready.policy.label, ready.settings, ready.out).num_unsettled()
        prepared_parts.append(PreparedPart(part, config, ready, len(ready.tasks) * config.epochs, left))
    if problems:
        refusal = EvaluationError("\n".join(_refusal(suite, problems, files)))
        refusal.exit_code = exit_code_of_problems(problems)
        raise refusal
    return prepared_parts


def _refusal(suite: Suite, problems: Mapping[str, Sequence[str]], files: Mapping[str, FilesByProblem]) -> Iterator[str]:
    """Lines of the message: each problem once with the parts of the suite that have it, then the missing data of all
    together. ``files``: missing files by benchmark."""
    yield f"{suite.name} is not begun:"
    about_files = {problem for by_problem in files.values() for problem in by_problem}
    for problem, parts in problems.items():
        if problem not in about_files:
            yield f"- {', '.join(parts)}: {problem}"
    missing = {name: [*dict.fromkeys(chain.from_iterable(one.values()))] for name, one in files.items() if one}
    folders = dict.fromkeys(config.data for _, config in suite.parts if config.data)
    words = " ".join((*_data_sets(missing), *(f"--data {shlex.quote(folder)}" for folder in folders)))
    yield from how_to_fetch(missing, words, ", ".join(missing))
    yield "Nothing was played. --without NAME,... leaves benchmarks out"


def _data_sets(names: Iterable[str]) -> Iterable[str]:
    """The names of benchmarks, or in place of all those of a family its name."""
    families: dict[str, set[str]] = {}
    for offer in offers():
        families.setdefault(offer.name.partition("/")[0], set()).add(offer.name)
    whole = {family for family, all_names in families.items() if all_names <= set(names)}
    return dict.fromkeys(family if (family := name.partition("/")[0]) in whole else name for name in names)
