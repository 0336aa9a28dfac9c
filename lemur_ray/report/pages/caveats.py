"""What a reader of a page must know before believing its numbers: what they do not show, and what is missing in them.

Knows neither tables nor figures.
"""

from __future__ import annotations

from collections.abc import Sequence

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.report.pages.markup import rate_text, warning
from lemur_ray.report.policy_results import PolicyResult

GENERAL_LIMITS = (
    "Intervals are 95 % Wilson intervals over tasks; where tasks were played several times, with the effective number "
    "of observations that follows from the variance between tasks. They do not cover the choice of the training seed: "
    "another run of the same recipe can lie outside.",
)


def limits(played: Sequence[PolicyResult]) -> list[str]:
    """What the page does not show, for these runs."""
    said = dict.fromkeys(line for p in played for line in p.about.beside)
    said |= dict.fromkeys(line for p in played for line in p.about.limits)
    return [*said, *GENERAL_LIMITS]


def missing(played: Sequence[PolicyResult]) -> str:
    lines = []
    for p in played:
        overall = p.report.overall
        if overall.missing:
            by = ", ".join(f"{count} by {blame}" for blame, count in overall.missing.items())
            lines.append(
                f"{p.name}: {overall.n - overall.scored} of {overall.n} episodes have no score ({by}). They are left "
                f"out of the rates; counted as failed, the success rate would be "
                f"{rate_text(overall.success_missing_failed)}."
            )
        early = sum(e.outcome is Outcome.CONTEXT_OVERFLOW and len(e.trajectory.steps) <= 1 for e in p.episodes)
        if early:
            lines.append(
                f"{p.name}: {early} of {overall.n} episodes did not fit the model's context after at most one turn. "
                "They count as failed, but say nothing of its skill: the prompt is too long for it."
            )
    return warning(lines)
