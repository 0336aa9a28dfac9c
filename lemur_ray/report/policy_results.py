"""One policy on one benchmark, as a page sees it: its name, its place among others, and each pair of them compared.

Knows tables and protocols; draws nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lemur_ray.agents.trajectory import Episode
from lemur_ray.report.protocol import Settings, as_played, differences
from lemur_ray.report.recording_names import recorded_name
from lemur_ray.report.statistics import PairedDifference
from lemur_ray.report.tables import Report, compare, summarise

_BASELINES = {"random": "random action", "expert": "expert"}
"""Policies without a model, by their name in keys (agents/scripted.py)."""


@dataclass(frozen=True)
class Played:
    """One policy on one benchmark: its episodes, the sums over them, and where each can be read."""

    report: Report
    episodes: Sequence[Episode]
    links: Sequence[str] = ()
    name: str = ""
    settings: Settings = field(default_factory=dict)
    """What stands behind the recipe's hash; empty where it was not recorded."""

    @property
    def is_baseline(self) -> bool:
        return is_baseline(self.report.policy)


def is_baseline(policy: str) -> bool:
    """Whether the policy is there to compare with: random actions, the expert, an untrained model."""
    return policy in _BASELINES or _untrained(policy)


def _untrained(policy: str) -> bool:
    served = policy.removeprefix("openai:").removeprefix("handle:")
    return "untrained" in policy or served.startswith(("random:", "random-"))


def display_name(policy: str) -> str:
    """How a policy is called on the page: ``openai:nano-chat@1500-3f9a01bc`` is ``nano-chat, step 1500``."""
    if _untrained(policy):
        return "untrained model"
    if (recorded := recorded_name(policy)) is not None:
        return recorded.shown
    name, _, version = policy.removeprefix("openai:").partition("@")
    if checkpoint := re.fullmatch(r"(\d+)-[0-9a-f]{8}", version):
        return f"{name}, step {checkpoint[1]}"
    return _BASELINES.get(policy, f"{name}, version {version}" if version else name)


def newest_versions(runs: Sequence[Sequence[Episode]]) -> tuple[list[int], list[int]]:
    """Places of the runs of each policy's newest version on its benchmark, and places of all runs of earlier ones.

    ``runs`` go from the oldest to the newest; a policy is what stands before the ``@`` of its name.
    """
    keys = [run[0].key for run in runs]
    newest = {(key.benchmark, key.policy.partition("@")[0]): key.policy for key in keys}
    shown = [newest[key.benchmark, key.policy.partition("@")[0]] == key.policy for key in keys]
    return [i for i, is_new in enumerate(shown) if is_new], [i for i, is_new in enumerate(shown) if not is_new]


def order(played: Sequence[Played]) -> list[Played]:
    """Models first, then untrained model, random action, expert; names made distinct by the settings that differ."""
    names = [display_name(p.report.policy) for p in played]
    for shared in {name for name in names if names.count(name) > 1}:
        places = [i for i, name in enumerate(names) if name == shared]
        apart = [
            ", ".join(words)
            for words in differences([as_played(played[i].report.policy, played[i].settings) for i in places])
        ]
        for place, words in zip(places, apart, strict=True):
            told = words if words and apart.count(words) == 1 else played[place].report.recipe[:6]
            names[place] = f"{shared} {told}" if told != words else f"{shared} ({words})"
    named = [replace(p, name=name.strip()) for p, name in zip(played, names, strict=True)]
    last = ("untrained model", "random action", "expert")
    return sorted(named, key=lambda p: (p.is_baseline, last.index(p.name) if p.name in last else -1, p.name))


@dataclass(frozen=True)
class PairOfPolicies:
    """Two policies on the same tasks. ``apart``: how their settings differ, empty where they are the same."""

    first: Played
    second: Played
    difference: PairedDifference
    apart: str


def comparisons(played: Sequence[Played]) -> list[PairOfPolicies]:
    """Every pair, on the tasks that both were scored on; pairs with the same settings first.

    Prompt, sampling and seed are no difference where one of the two has no model to take notice of them.
    """
    out = []
    for a, b in itertools.combinations(played, 2):
        difference = compare(a.episodes, b.episodes)
        if difference is None:
            continue
        scripted = any(p.report.policy in _BASELINES for p in (a, b))
        played_as = [as_played(p.report.policy, p.settings) for p in (a, b)]
        of_a, of_b = differences(played_as, without_model=scripted)
        apart = f"{', '.join(of_a)} against {', '.join(of_b)}" if of_a or of_b else ""
        if not apart and not a.settings and a.report.recipe != b.report.recipe:
            apart = f"unknown: {a.report.recipe[:6]} against {b.report.recipe[:6]}"
        out.append(PairOfPolicies(a, b, difference, apart))
    return sorted(out, key=lambda found: bool(found.apart))


def played_run(episodes: Sequence[Episode], links: Sequence[str] = (), settings: Settings | None = None) -> Played:
    """The episodes of one run (see ``tables.by_run``) with their sums."""
    return Played(summarise(episodes), episodes, links, settings=settings or {})
