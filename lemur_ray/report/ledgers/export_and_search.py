"""Searches ledgers, and exports them as logs of inspect_ai; results are lines for a terminal."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.report.escape import printable
from lemur_ray.report.ledgers.inspect_log import write_logs
from lemur_ray.report.ledgers.stored_episodes import StoredEpisode, stored_episodes
from lemur_ray.report.tables import by_run
from lemur_ray.rollout.evaluation_folder import load_settings

AROUND = 60
"""Characters of an excerpt before and after the match."""


@dataclass(frozen=True)
class Match:
    """A message that contains the text. ``anchor``: its episode's id on pages; ``turn``: from 1, 0 before the first
    reply; ``who``: author of the message; ``excerpt``: the text with its surroundings."""

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
    """Yield every message that contains ``text``, ignoring case, in the order of the ledgers in ``folders``. Raises
    FileNotFoundError and LedgerError as reading a ledger does, ValueError for an empty text."""
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
        yield from ((number, "tool call", f"{call.name} {call.arguments}") for call in step.tool_calls)
        yield from ((number, "tool result", text) for text in step.results)
        yield number, "observation", step.observation
    yield len(episode.trajectory.steps), "detail", episode.detail
    yield len(episode.trajectory.steps), "note", episode.note


def _excerpt(content: str, place: int, length: int) -> str:
    start, end = max(0, place - AROUND), place + length + AROUND
    shown = " ".join(content[start:end].split())
    return f"{'…' if start else ''}{shown}{'…' if end < len(content) else ''}"


def search_ledgers(folders: Sequence[Path], text: str) -> Iterator[str]:
    """Yield the output of ``--find``: each message with the text, then one line of JSON. folders: results folders.
    Raises ValueError for an empty text, FileNotFoundError without a ledger, LedgerError for an invalid one."""
    messages, episodes = 0, set()
    for match in find_text(folders, text):
        messages += 1
        episodes.add(match.anchor)
        yield match.line()
    yield json.dumps({"find": text, "messages": messages, "episodes": len(episodes)})


def export_eval_logs(folders: Sequence[Path], where: Path) -> Iterator[str]:
    """Write every run in the results folders ``folders`` as a log file of inspect_ai in the folder ``where``. Yields
    lines to print: the path of each log, then a JSON object with all paths ("eval") and the number of episodes
    ("episodes"). Raises ValueError if the folders have no episodes, and as ``search_ledgers`` for a ledger."""
    runs: list[list[StoredEpisode]] = []
    settings: dict[str, Mapping[str, Any]] = {}
    for folder in folders:
        for run in by_run(stored_episodes(folder / "episodes.jsonl")).values():
            runs.append([episode for episode in run if isinstance(episode, StoredEpisode)])
        settings |= {recipe: known.get("settings", {}) for recipe, known in load_settings(folder).items()}
    if not runs:
        raise ValueError(f"--eval {where}: no episodes; run jobs/agent_eval.py first, or pass --episodes")
    paths = write_logs(where, runs, settings)
    yield from map(str, paths)
    yield json.dumps({"eval": [str(path) for path in paths], "episodes": sum(len(run) for run in runs)})
