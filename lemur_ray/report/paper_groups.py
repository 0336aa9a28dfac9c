"""Columns of the paper's averages, and the signs of failure that its Table 9 counts.

Averages are micro averages: successes over episodes. Knows no ledger and draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from lemur_ray.agents.trajectory import Episode, Outcome
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
    steps = episode.trajectory.steps
    # The model read every observation but the last, and that too if the context overflowed after it.
    observed = steps if episode.outcome is Outcome.CONTEXT_OVERFLOW else steps[:-1]
    return any(TRACEBACK in step.observation for step in observed)


def had_invalid_action(episode: Episode) -> bool:
    """Whether any reply had no valid action."""
    return any(step.action is None for step in episode.trajectory.steps)
