"""Before anything of a suite is played: every benchmark is looked at, and all that lacks is said in one list.

Starts no Ray and pays for nothing (``lemur_ray/evaluation/preflight.py``). Knows no benchmark by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.benchmarks.discovery import find
from lemur_ray.evaluation.preflight import NotBegun, Prepared, prepare
from lemur_ray.evaluation.suites.command_line import Suite
from lemur_ray.evaluation.suites.tables import Part
from lemur_ray.rollout.evaluation import num_unsettled
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.evaluation_folder import EvaluationError, prepare_out
from lemur_ray.rollout.ledger import LedgerError


@dataclass(frozen=True)
class Ready:
    """A part that can be played. ``num_left``: of its ``num_episodes``, those without a score."""

    part: Part
    config: EvalConfig[Any]
    prepared: Prepared
    num_episodes: int
    num_left: int


def looked_at(suite: Suite, attach: Callable[[PolicySpec], PolicySpec]) -> list[Ready]:
    """All parts, ready. Raises EvaluationError with everything that lacks, and for which benchmarks."""
    found: list[Ready] = []
    lacking: dict[str, list[str]] = {}
    prepare_out(suite.out)
    for part, config in suite.parts:
        try:
            ready = prepare(config, find(part.benchmark), attach)
        except NotBegun as error:
            for said in error.said:
                lacking.setdefault(said, []).append(part.shown)
            continue
        except (EvaluationError, LedgerError, ValueError, OSError) as error:
            lacking.setdefault(str(error), []).append(part.shown)
            continue
        left = num_unsettled(config, ready.tasks, ready.policy.label, ready.settings, ready.out)
        found.append(Ready(part, config, ready, len(ready.tasks) * config.epochs, left))
    if lacking:
        lines = [f"{', '.join(names)}: {said}" for said, names in lacking.items()]
        hint = "Nothing was played. --without NAME,... leaves benchmarks out"
        raise EvaluationError("\n- ".join([f"{suite.name} is not begun:", *lines]) + f"\n{hint}")
    return found
