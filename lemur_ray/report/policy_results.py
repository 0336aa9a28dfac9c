"""One policy on one benchmark, as a page sees it: its name, its place among others, and each pair of them compared.

Knows tables and protocols; draws nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.run_notes import RecordedName, RunDescription
from lemur_ray.report.ledgers.stored_episodes import StoredEpisode
from lemur_ray.report.protocol import differences
from lemur_ray.report.statistics import PairedDifference, holm
from lemur_ray.report.tables import Report, compare, summarise

_BASELINES = {"random": "random action", "expert": "expert"}
"""Policies without a model, by their name in keys (agents/baselines/scripted.py)."""


@dataclass(frozen=True)
class PolicyResult:
    """One policy on one benchmark: its episodes, the sums over them, and where each can be read."""

    report: Report
    episodes: Sequence[Episode]
    links: Sequence[str] = ()
    name: str = ""
    about: RunDescription = field(default_factory=RunDescription)
    """What its benchmark says of the run."""

    @property
    def is_baseline(self) -> bool:
        return is_baseline(self.report.policy)

    @property
    def stored(self) -> list[StoredEpisode]:
        """Its episodes as their ledgers have them."""
        return [e for e in self.episodes if isinstance(e, StoredEpisode)]


def is_baseline(policy: str) -> bool:
    """Whether the policy is there to compare with: random actions, the expert, an untrained model."""
    return policy in _BASELINES or _untrained(policy)


def _untrained(policy: str) -> bool:
    served = policy.removeprefix("openai:").removeprefix("handle:")
    return "untrained" in policy or served.startswith(("random:", "random-"))


def display_name(policy: str, recorded: RecordedName | None = None) -> str:
    """How a policy is called on the page: ``openai:nano-chat@1500-3f9a01bc`` is ``nano-chat, step 1500``."""
    if _untrained(policy):
        return "untrained model"
    if recorded is not None:
        return recorded.shown
    name, _, version = policy.removeprefix("openai:").partition("@")
    if checkpoint := re.fullmatch(r"(\d+)-[0-9a-f]{8}", version):
        return f"{name}, step {checkpoint[1]}"
    return _BASELINES.get(policy, f"{name}, version {version}" if version else name)


def split_newest_versions(runs: Sequence[Sequence[Episode]]) -> tuple[list[int], list[int]]:
    """Places of the runs of each policy's newest version on its benchmark, and places of all runs of earlier ones.

    ``runs`` go from the oldest to the newest; a policy is what stands before the ``@`` of its name.
    """
    keys = [run[0].key for run in runs]
    newest = {(key.benchmark, key.policy.partition("@")[0]): key.policy for key in keys}
    shown = [newest[key.benchmark, key.policy.partition("@")[0]] == key.policy for key in keys]
    return [i for i, is_new in enumerate(shown) if is_new], [i for i, is_new in enumerate(shown) if not is_new]


def order(played: Sequence[PolicyResult]) -> list[PolicyResult]:
    """Models first, then untrained model, random action, expert; names made distinct by the settings that differ."""
    names = [display_name(p.report.policy, p.about.recorded) for p in played]
    for shared in {name for name in names if names.count(name) > 1}:
        places = [i for i, name in enumerate(names) if name == shared]
        apart = [", ".join(words) for words in differences([played[i].about for i in places])]
        for place, words in zip(places, apart, strict=True):
            told = words if words and apart.count(words) == 1 else played[place].report.recipe[:6]
            names[place] = f"{shared} {told}" if told != words else f"{shared} ({words})"
    named = [replace(p, name=name.strip()) for p, name in zip(played, names, strict=True)]
    last = ("untrained model", "random action", "expert")
    return sorted(named, key=lambda p: (p.is_baseline, last.index(p.name) if p.name in last else -1, p.name))


@dataclass(frozen=True)
class PolicyComparison:
    """Two policies on the same tasks. ``apart``: how their settings differ, empty where they are the same."""

    first: PolicyResult
    second: PolicyResult
    difference: PairedDifference
    apart: str
    p_holm: float | None = None
    """The p-value adjusted for all pairs that are compared, where these are several."""


def comparisons(played: Sequence[PolicyResult]) -> list[PolicyComparison]:
    """Every pair, on the tasks that both were scored on; pairs with the same settings first.

    Prompt, sampling and seed are no difference where one of the two has no model to take notice of them.
    """
    out = []
    for a, b in itertools.combinations(played, 2):
        difference = compare(a.episodes, b.episodes)
        if difference is None:
            continue
        scripted = any(p.report.policy in _BASELINES for p in (a, b))
        of_a, of_b = differences([a.about, b.about], without_model=scripted)
        apart = f"{', '.join(of_a)} against {', '.join(of_b)}" if of_a or of_b else ""
        if not apart and not a.about.known and a.report.recipe != b.report.recipe:
            apart = f"unknown: {a.report.recipe[:6]} against {b.report.recipe[:6]}"
        out.append(PolicyComparison(a, b, difference, apart))
    if len(out) > 1:
        adjusted = holm([pair.difference.p_value for pair in out])
        out = [replace(pair, p_holm=p) for pair, p in zip(out, adjusted, strict=True)]
    return sorted(out, key=lambda found: bool(found.apart))


def policy_result(episodes: Sequence[Episode], about: RunDescription, links: Sequence[str] = ()) -> PolicyResult:
    """The episodes of one run (see ``tables.by_run``) with their sums."""
    return PolicyResult(summarise(episodes), episodes, links, about=about)
