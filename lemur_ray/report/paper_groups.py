"""Columns of the paper's averages, and the signs of failure that its Table 9 counts.

Averages are micro averages: successes over episodes. Knows no ledger and draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lemur_ray.agents.trajectory import Episode, Outcome, Step
from lemur_ray.report.ledgers.stored_episodes import TRACEBACK

REASONING = ("M-GSM8K", "M-MATH", "M-TheoremQA", "M-HotpotQA", "M-MMLU")
CODE = ("M-HumanEval", "M-MBPP")
DECISION = ("ALFWorld",)
GROUPS: Mapping[str, tuple[str, ...]] = {
    "reasoning": REASONING,
    "code": CODE,
    "micro": REASONING + CODE,
    "all": REASONING + CODE + DECISION,
}


def saw_traceback(episode: Episode) -> bool:
    """Whether the model was shown a Python traceback."""
    return any(TRACEBACK in step.observation for step in _observed_steps(episode))


def had_invalid_action(episode: Episode) -> bool:
    """Whether any reply had no valid action."""
    return any(step.action is None for step in episode.trajectory.steps)


def _observed_steps(episode: Episode) -> Sequence[Step]:
    """Turns whose observation the model read: all but the last, unless the context overflowed after it."""
    steps = episode.trajectory.steps
    return steps if episode.outcome is Outcome.CONTEXT_OVERFLOW else steps[:-1]
