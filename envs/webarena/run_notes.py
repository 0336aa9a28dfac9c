"""Describes WebArena runs for report pages: limits, differences from the published protocol, statistics."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from envs.published_protocols import published_protocol
from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription, default_description

NOTE = "webarena: "
DISPUTED = (144, 407, 408, 584, 643, 649)
"""Tasks with disputed reference answers. They are played and scored unchanged."""
_LIMITS = (
    f"The reference answers of tasks {', '.join(map(str, DISPUTED))} are disputed, and scored as upstream has them.",
    "WebArena's tasks change what later ones see, and none asks for a reset: rates depend on the order of tasks.",
    "The tasks were annotated anew in September 2023; which annotation the paper played is unknown.",
)
_NO_JUDGE = (
    "Without a judge the answers to up to 118 tasks are scored by rules alone: the rate is a lower bound, and the "
    "upper one stands beside it."
)
_WORDS: Mapping[str, tuple[str, str]] = {
    "actions": ("{value} actions", "symbolic actions"),
    "evaluator": ("{value} evaluators", "upstream evaluators"),
    "judge": ("judge {value}", "no judge"),
}


def about(run: EvaluationRun) -> RunDescription:
    """Describe a run of ``webarena/webarena``: limits, action language, and differences from the protocol."""
    settings = run.settings
    beside = (_NO_JUDGE,) if settings and settings.get("judge", "none") == "none" else ()
    return replace(
        default_description(run),
        limits=_LIMITS + beside,
        beside=beside,
        column="WebArena",
        variant="Python calls" if settings.get("actions") == "python" else "symbolic actions",
        words=_WORDS,
    )


def _further(run: EvaluationRun) -> Sequence[str]:
    """The action language and the judge, which have no single value that departs."""
    departures = ["Python-call actions"] if run.settings.get("actions") == "python" else []
    return [*departures, *(["no judge"] if run.settings.get("judge", "none") == "none" else [])]


PROTOCOL = published_protocol("webarena", further=_further)
_COUNTED = (*("parse_failures", "coercions", "in_vain", "beyond_symbolic"), *("outside", "dialogs", "without_picture"))


def notes(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Sums of the episodes' counters, and ``early_stops`` by kind. Where they apply, also success rates in percent:
    ``success_rate_at_best``, as if a judge had accepted everything (runs without a judge), ``success_rate_verified`` by
    the second scorer, and ``success_rate_missing_as_failed``, with unscored episodes as failures."""
    counted = list(filter(None, map(counts_of, episodes)))
    numbers: dict[str, Any] = {name: sum(one.get(name, 0) for one in counted) for name in _COUNTED}
    stops = [one["early_stop"] for one in counted if one.get("early_stop")]
    numbers["early_stops"] = {kind: stops.count(kind) for kind in sorted(set(stops))}
    if any("rules_at_best" in episode.scores for episode in episodes):
        best = [one.scores.get("rules_at_best", one.score) for one in episodes if one.outcome.scored]
        numbers["without_verdict"] = sum(not one.get("verdict", True) for one in counted)
        numbers["success_rate_at_best"] = round(100 * sum(score == 1 for score in best) / len(best), 2)
    if judged := [one for one in episodes if one.outcome.scored and counts_of(one).get("verified")]:
        there = [one.scores.get("verified", 0) == 1 for one in judged]  # without a verdict: not solved
        numbers["success_rate_verified"] = round(100 * sum(there) / len(judged), 2)
        numbers["verified_missing"] = sum("verified" not in one.scores for one in judged)
        numbers["solved_by_one_scorer"] = sum(
            solved != (one.score == 1) for solved, one in zip(there, judged, strict=True) if "verified" in one.scores
        )
    missing = sum(not episode.outcome.scored for episode in episodes)
    if missing:  # upstream's mean counts them as failures
        solved = sum(episode.score == 1 for episode in episodes)
        numbers["missing"] = missing
        numbers["success_rate_missing_as_failed"] = round(100 * solved / len(episodes), 2)
    return numbers


def counts_of(episode: Episode) -> Mapping[str, Any]:
    """The counters in an episode's note (in older ledgers, in its detail), by name; empty if there are none."""
    text = episode.note or episode.detail
    place = text.find(NOTE)
    try:
        counts = json.JSONDecoder().raw_decode(text[place + len(NOTE) :])[0] if place >= 0 else {}
    except ValueError:  # a text that was cut
        return {}
    return counts if isinstance(counts, Mapping) else {}
