"""Search in ledgers and their export as logs of inspect_ai, as lines for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lemur_ray.report.ledgers.find_text import find_text
from lemur_ray.report.ledgers.inspect_log import write_logs
from lemur_ray.report.ledgers.stored_episodes import StoredEpisode, stored_episodes
from lemur_ray.report.tables import by_run
from lemur_ray.rollout.evaluation_folder import load_settings


def search_ledgers(folders: Sequence[Path], text: str) -> Iterator[str]:
    """Output of ``--find``: each message with the text, then one line of JSON. Raises as ``find_text``."""
    messages, episodes = 0, set()
    for match in find_text(folders, text):
        messages += 1
        episodes.add(match.anchor)
        yield match.line()
    yield json.dumps({"find": text, "messages": messages, "episodes": len(episodes)})


def export_eval_logs(folders: Sequence[Path], where: Path) -> Iterator[str]:
    """Output of ``--eval``: the path of each log, then one line of JSON. Raises ValueError where there is no run."""
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
