"""Every attempt that was not the policy's doing and was tried again: which episode, what it died of, how often in all.

A retry gives a hard input another chance, so a report must say what was retried and why. Knows nothing of files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.report.escape import block, inline
from lemur_ray.report.pages.markup import table

_REASON = re.compile(r"attempt (\d+): (\w+)(?:: )?(.*)", re.DOTALL)
QUARANTINE = "sandbox in quarantine"
SHOWN_CHARS = 300


@dataclass(frozen=True)
class Retry:
    """One attempt that was followed by another. ``kind``: how it ended, or that its sandbox did not come back clean."""

    task: str
    epoch: int
    attempt: int
    kind: str
    reason: str


def retries_of(episodes: Sequence[Episode]) -> list[Retry]:
    """Every retry of a run, in the order of its episodes."""
    return [_retry(e, number, said) for e in episodes for number, said in enumerate(e.retried, 1)]


def _retry(episode: Episode, number: int, said: str) -> Retry:
    found = _REASON.fullmatch(said)
    kind, reason = (found[2], found[3]) if found else ("unknown", said)
    if "was put in quarantine" in reason:
        kind = QUARANTINE
    return Retry(episode.key.task, episode.key.epoch, number, kind, reason[:SHOWN_CHARS])


def retries_json(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Counts by kind, and each retry."""
    every = retries_of(episodes)
    return {"by_kind": dict(Counter(retry.kind for retry in every)), "each": [asdict(retry) for retry in every]}


def retries_section(episodes: Sequence[Episode]) -> str:
    """What was retried, as a part of a page; empty where nothing was."""
    every = retries_of(episodes)
    if not every:
        return ""
    counts = Counter(retry.kind for retry in every)
    lines = "".join(
        f"<pre>{inline(r.task)}{inline(f' (epoch {r.epoch})') if r.epoch else ''}, attempt {r.attempt}, "
        f"{inline(r.kind)}: {block(r.reason)}</pre>"
        for r in every
    )
    return (
        "<h3>Retries</h3>"
        + table(["what an attempt ended by that says nothing of the policy", "retried"], sorted(counts.items()))
        + f"<details><summary>each of the {len(every)} retries</summary>{lines}</details>"
    )
