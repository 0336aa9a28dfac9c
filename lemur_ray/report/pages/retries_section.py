"""Attempts that ended through no fault of the policy and were repeated: which episode, why, and how often in all.

A retry gives a hard input another chance, so a report must show what was retried and why. Knows nothing of files."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from lemur_ray.agents.trajectory import Episode
from lemur_ray.report.pages.markup import table
from lemur_ray.report.pages.rendering import render

_RECORD = re.compile(r"attempt (\d+): (\w+)(?:: )?(.*)", re.DOTALL)
"""Format of a retry in the ledger: attempt, outcome, reason."""
QUARANTINE = "sandbox in quarantine"
MAX_REASON_CHARS = 300


@dataclass(frozen=True)
class Retry:
    """An attempt that was followed by another. ``attempt``: number, from 1; ``kind``: outcome, or ``QUARANTINE``."""

    task: str
    epoch: int
    attempt: int
    kind: str
    reason: str


def retries_of(episodes: Sequence[Episode]) -> list[Retry]:
    """Every retry of a run, in the order of its episodes."""
    return [_parse(e, number, record) for e in episodes for number, record in enumerate(e.retried, 1)]


def _parse(episode: Episode, number: int, record: str) -> Retry:
    match = _RECORD.fullmatch(record)
    kind, reason = (match[2], match[3]) if match else ("unknown", record)
    if number in episode.quarantined:
        kind = QUARANTINE
    return Retry(episode.key.task, episode.key.epoch, number, kind, reason[:MAX_REASON_CHARS])


def retries_json(episodes: Sequence[Episode]) -> dict[str, Any]:
    """The retries of a run as JSON values: ``by_kind`` (kind -> count) and ``each`` (fields of ``Retry``)."""
    retries = retries_of(episodes)
    return {"by_kind": dict(Counter(retry.kind for retry in retries)), "each": [asdict(retry) for retry in retries]}


def retries_section(episodes: Sequence[Episode]) -> Markup:
    """Section of a page on retries; empty if there were none."""
    retries = retries_of(episodes)
    if not retries:
        return Markup("")
    counts = Counter(retry.kind for retry in retries)
    header = ["reason of a retry, not caused by the policy", "retried"]
    return render("retries", counts=table(header, sorted(counts.items())), retries=retries)
