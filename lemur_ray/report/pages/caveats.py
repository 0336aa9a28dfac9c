"""What a reader must know before believing the numbers of a page: limits of the method and missing episodes.

Knows neither tables nor figures."""

from collections.abc import Sequence

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.report.pages.markup import cut_text, rate_text
from lemur_ray.report.policy_results import PolicyResult
from lemur_ray.rollout.episode_record import CALL_IN_TEXT
from lemur_ray.rollout.progress import MAX_CUT_SHARE

GENERAL_LIMITS = (
    "Intervals are 95 % Wilson intervals over tasks; where tasks were played several times, with the effective number "
    "of observations that follows from the variance between tasks. They do not cover the choice of the training seed: "
    "another run of the same recipe can lie outside.",
)


def limits(results: Sequence[PolicyResult]) -> list[str]:
    """Sentences on what limits the validity of these results, each once: of their benchmarks, then in general."""
    lines = dict.fromkeys(line for r in results for line in r.about.beside)
    lines |= dict.fromkeys(line for r in results for line in r.about.limits)
    return [*lines, *GENERAL_LIMITS]


def unscored_and_overflowed(results: Sequence[PolicyResult]) -> list[str]:
    """Warnings about unscored episodes, cut replies, calls in their text, prompts beyond the context; maybe none."""
    lines = []
    for r in results:
        overall = r.report.overall
        if overall.missing:
            by = ", ".join(f"{count} by {blame}" for blame, count in overall.missing.items())
            lines.append(
                f"{r.name}: {overall.n - overall.scored} of {overall.n} episodes have no score ({by}). They are left "
                f"out of the rates; counted as failed, the success rate would be "
                f"{rate_text(overall.success_missing_failed)}."
            )
        if (overall.cut.get("share") or 0) > MAX_CUT_SHARE:
            turns = ", ".join(f"{count} in turn {turn}" for turn, count in list(overall.cut["by_turn"].items())[:5])
            lines.append(
                f"{r.name}: replies are cut: {cut_text(overall)}, in {len(overall.cut['by_task'])} tasks; {turns}. The "
                "rate says little of the model's skill: give replies or their reasoning more tokens."
            )
        if calls := overall.cut.get("calls_in_text"):
            lines.append(f"{r.name}: {calls} of {overall.cut['n']} replies: {CALL_IN_TEXT}.")
        early = sum(e.outcome is Outcome.CONTEXT_OVERFLOW and len(e.trajectory.steps) <= 1 for e in r.episodes)
        if early:
            lines.append(
                f"{r.name}: {early} of {overall.n} episodes did not fit the model's context after at most one turn. "
                "They count as failed, but say nothing of its skill: the prompt is too long for it."
            )
    return lines
