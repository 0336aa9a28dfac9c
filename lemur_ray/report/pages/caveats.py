"""What a reader of a page must know before believing its numbers: what they do not show, and what is missing in them.

Knows neither tables nor figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.report.pages.markup import rate_text, warning
from lemur_ray.report.policy_results import Played
from lemur_ray.report.protocol import is_spider

LIMITS: Mapping[str, Sequence[str]] = {
    "alfworld/text": (
        "The games are generated and smaller than ALFWorld's own (about 13 receptacles against 25, 12 objects against "
        "more than 40). These rates are not ALFWorld scores.",
        "Held out means that no (task type, object, target) triple was seen in training. Every goal object has been "
        "the goal of some training game: games with an object that was never a goal in training are not in these "
        "numbers, and nothing here shows that the model could solve one.",
        "The model imitates an expert on games of the same generator. It shows that the chain works end to end, not "
        "that a model of this size has general skill.",
    ),
    "intercode/sql": (
        "The environment shows the reward after every query (as the paper's protocol does): the policy may use it.",
    ),
    "intercode/bash": (
        "The action `true` alone solves 19 of the 200 tasks (9.5 %): their golds print nothing and change nothing.",
    ),
    "intercode/ctf": (
        "The flags are public: a model may have memorised them, and no number here tells that apart from skill.",
    ),
}
SAMPLE_DATABASE = (
    "The questions are asked of a small sample database made from this machine's own software, not of Spider's 20 "
    "databases."
)
GENERAL_LIMITS = (
    "Intervals are 95 % Wilson intervals over tasks; where tasks were played several times, with the effective number "
    "of observations that follows from the variance between tasks. They do not cover the choice of the training seed: "
    "another run of the same recipe can lie outside.",
)


def limits(played: Sequence[Played]) -> list[str]:
    """What the page does not show, for these runs."""
    benchmarks = dict.fromkeys(p.report.benchmark for p in played)
    sample = [p for p in played if p.report.benchmark == "intercode/sql" and not is_spider(p.episodes)]
    lines = [SAMPLE_DATABASE] if sample else []
    return [*lines, *(line for b in benchmarks for line in LIMITS.get(b, ())), *GENERAL_LIMITS]


def missing(played: Sequence[Played]) -> str:
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
