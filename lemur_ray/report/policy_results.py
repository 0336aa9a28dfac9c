"""Results of one policy on one benchmark as a page shows them: names, order, and comparisons in pairs.

Knows tables and protocols; draws nothing."""

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lemur_ray.agents.policy_spec import KINDS, Baseline
from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.benchmarks.run_notes import RecordedName, RunDescription
from lemur_ray.report.ledgers.stored_episodes import StoredEpisode
from lemur_ray.report.protocol import differences
from lemur_ray.report.statistics import PairedDifference, holm
from lemur_ray.report.tables import Rate, Report, compare, is_solved, rate_of, summarise

UNTRAINED = Baseline("untrained model", 1)
"""The baseline that random weights give."""


@dataclass(frozen=True)
class PolicyResult:
    """One run of a policy on a benchmark: its episodes, the sums over them, and a link to each transcript."""

    report: Report
    episodes: Sequence[Episode]
    links: Sequence[str] = ()
    name: str = ""
    about: RunDescription = field(default_factory=RunDescription)
    """Run notes of its benchmark."""

    def to_json(self) -> dict[str, Any]:
        """The sums over the episodes, and the run's departures from the published protocol, as JSON values."""
        return {**self.report.to_json(), "departures": list(self.about.departures)}

    @property
    def baseline(self) -> Baseline | None:
        return baseline_of(self.report.policy)

    def rate_without(self, tasks: Collection[str]) -> Rate:
        """Success rate over the scored episodes of all other tasks."""
        return rate_of([e for e in self.episodes if e.outcome.scored and e.key.task not in tasks], is_solved)

    @property
    def stored(self) -> list[StoredEpisode]:
        """The episodes of this run that were read from a ledger."""
        return [e for e in self.episodes if isinstance(e, StoredEpisode)]


def baseline_of(policy: str) -> Baseline | None:
    """The baseline that the policy with this name in episode keys is, by the name alone; None for a model."""
    served = policy.removeprefix("openai:").removeprefix("handle:")
    if "untrained" in policy or served.startswith(("random:", "random-")):
        return UNTRAINED
    return KINDS[policy].baseline if policy in KINDS else None


def display_name(policy: str, recorded: RecordedName | None = None) -> str:
    """Name of a policy on the page: ``openai:nano-chat@1500-3f9a01bc`` is ``nano-chat, step 1500``. recorded: facts of
    a replayed run, shown instead."""
    baseline = baseline_of(policy)
    if baseline is not UNTRAINED and recorded is not None:
        return recorded.shown
    if baseline:
        return baseline.name
    name, _, version = policy.removeprefix("openai:").partition("@")
    if checkpoint := re.fullmatch(r"(\d+)-[0-9a-f]{8}", version):
        return f"{name}, step {checkpoint[1]}"
    return f"{name}, version {version}" if version else name


def solved_without_skill(results: Sequence[PolicyResult]) -> list[str]:
    """Sorted ids of the tasks that doing nothing or random actions solve: a solved task there shows no skill."""
    floor = [r for r in results if r.baseline and r.baseline.is_floor]
    return sorted({e.key.task for r in floor for e in r.episodes if e.outcome is Outcome.SOLVED})


def split_newest_versions(runs: Sequence[list[Episode]]) -> tuple[list[list[Episode]], list[list[Episode]]]:
    """Returns (runs of each policy's newest version on its benchmark, runs of earlier versions). ``runs``: each the
    episodes of one run, from the oldest to the newest; the version is the part of a policy's name after ``@``."""
    keys = [run[0].key for run in runs]
    newest = {(key.benchmark, key.policy.partition("@")[0]): key.policy for key in keys}
    is_new = [newest[key.benchmark, key.policy.partition("@")[0]] == key.policy for key in keys]
    parts = [[run for run, new in zip(runs, is_new, strict=True) if new is wanted] for wanted in (True, False)]
    return parts[0], parts[1]


def with_distinct_names(results: Sequence[PolicyResult]) -> list[PolicyResult]:
    """Results with names, models first, then baselines by kind; equal names get the settings that differ."""
    names = [display_name(r.report.policy, r.about.recorded) for r in results]
    for shared in {name for name in names if names.count(name) > 1}:
        places = [i for i, name in enumerate(names) if name == shared]
        apart = [", ".join(words) for words in differences([results[i].about for i in places])]
        for place, words in zip(places, apart, strict=True):
            distinct = bool(words) and apart.count(words) == 1
            names[place] = f"{shared} ({words})" if distinct else f"{shared} {results[place].report.recipe[:6]}"
    named = [replace(r, name=name.strip()) for r, name in zip(results, names, strict=True)]
    return sorted(named, key=lambda r: (r.baseline.place if r.baseline else 0, r.name))


@dataclass(frozen=True)
class PolicyComparison:
    """Comparison of two policies on the same tasks. ``different_settings``: as text, empty for equal settings.
    ``p_holm``: p-value adjusted for all comparisons of a page; None for a single one."""

    first: PolicyResult
    second: PolicyResult
    difference: PairedDifference
    different_settings: str
    p_holm: float | None = None


def comparisons(results: Sequence[PolicyResult]) -> list[PolicyComparison]:
    """Compare every pair of results on the tasks with scores of both; pairs with the same settings come first. Prompt,
    sampling and seed count as no difference if one of the two is a scripted policy, which ignores them."""
    out = []
    for a, b in itertools.combinations(results, 2):
        difference = compare(a.episodes, b.episodes)
        if difference is None:
            continue
        scripted = any(r.baseline not in (None, UNTRAINED) for r in (a, b))
        of_a, of_b = differences([a.about, b.about], without_model=scripted)
        apart = f"{', '.join(of_a)} against {', '.join(of_b)}" if of_a or of_b else ""
        if not apart and not a.about.known and a.report.recipe != b.report.recipe:
            apart = f"unknown: {a.report.recipe[:6]} against {b.report.recipe[:6]}"
        out.append(PolicyComparison(a, b, difference, apart))
    if len(out) > 1:
        adjusted = holm([pair.difference.p_value for pair in out])
        out = [replace(pair, p_holm=p) for pair, p in zip(out, adjusted, strict=True)]
    return sorted(out, key=lambda pair: bool(pair.different_settings))


def policy_result(episodes: Sequence[Episode], about: RunDescription) -> PolicyResult:
    """Build the result of one run from its episodes (of one benchmark, policy and recipe) and its description. Raises
    ValueError without episodes, for episodes of several runs, and if two have the same key."""
    return PolicyResult(summarise(episodes), episodes, about=about)
