"""Text search in the messages of ledgers, which are read once.

Of pages it knows only their addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.agents.trajectory import Episode
from lemur_ray.report.escape import printable
from lemur_ray.report.ledgers.stored_episodes import stored_episodes

AROUND = 60
"""Characters of an excerpt before and after the match."""


@dataclass(frozen=True)
class Match:
    """One message with the text. ``turn``: 0 before the first reply. ``who``: author of the message."""

    anchor: str
    episode: Episode
    turn: int
    who: str
    excerpt: str

    def line(self) -> str:
        """Two lines of printable text for a terminal."""
        key = self.episode.key
        where = f"turn {self.turn}, {self.who}" if self.turn else self.who
        epoch = f" (epoch {key.epoch})" if key.epoch else ""
        who, end = key.policy, self.episode.outcome.value
        head = f"episodes.html#{self.anchor}  {key.benchmark} {key.task}{epoch}  {who}  {end}"
        return printable(f"{head}\n  {where}: {self.excerpt}")


def find_text(folders: Sequence[Path], text: str) -> Iterator[Match]:
    """Every message that contains ``text``, ignoring case, in the order of the ledgers.

    Raises FileNotFoundError and LedgerError as reading a ledger does, ValueError for an empty text.
    """
    if not text:
        raise ValueError("--find: nothing to look for; give some text")
    for folder in folders:
        for stored in stored_episodes(folder / "episodes.jsonl"):
            episode = stored.load()
            for turn, who, content in _messages(episode):
                place = content.lower().find(text.lower())
                if place >= 0:
                    yield Match(stored.anchor, episode, turn, who, _excerpt(content, place, len(text)))


def _messages(episode: Episode) -> Iterator[tuple[int, str, str]]:
    for message in episode.trajectory.opening:
        yield 0, message.role, message.content
    for number, step in enumerate(episode.trajectory.steps, 1):
        yield from ((number, "thoughts", step.reasoning), (number, "reply", step.reply))
        yield number, "observation", step.observation
    yield len(episode.trajectory.steps), "detail", episode.detail
    yield len(episode.trajectory.steps), "note", episode.note


def _excerpt(content: str, place: int, length: int) -> str:
    start, end = max(0, place - AROUND), place + length + AROUND
    shown = " ".join(content[start:end].split())
    return f"{'…' if start else ''}{shown}{'…' if end < len(content) else ''}"
