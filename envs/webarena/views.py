"""What an episode kept of its pages (``--artefacts``, ``--screenshots``): screenshots and whole trees, turn by turn.

Reads a folder that ``BrowserPlay`` wrote. Knows no browser and no page that shows them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envs.webarena.run_notes import counts_of
from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.episode_artifacts import Box, View

TREES = "trees.jsonl"
MOST_BYTES = 64 << 20
"""Of a file of trees that is read."""
_ON_ELEMENT = re.compile(r"(?:click|hover|type)\s*(?:\[(\d+)\]|\(id=(\d+))")


def picture_name(turn: int) -> str:
    """The file of the screenshot that was taken after a turn."""
    return f"{turn:02d}.png"


def views(episode: Episode) -> Sequence[View]:
    """Turn by turn; empty where nothing was kept, or where it is not on this machine."""
    folder = counts_of(episode).get("artefacts")
    if not isinstance(folder, str) or not folder:
        return ()
    steps = episode.trajectory.steps
    found = []
    for row in _rows(Path(folder) / TREES):
        turn = row["number"]
        picture = Path(folder) / picture_name(turn)
        action = (steps[turn].action or "") if turn < len(steps) else ""
        found.append(View(turn, picture if picture.is_file() else None, row["text"], _box(action, row["elements"])))
    return found


def _rows(file: Path) -> list[Mapping[str, Any]]:
    """Those that are whole: a browser may have been killed while it was looked at."""
    try:
        if file.stat().st_size > MOST_BYTES:
            return []
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            row = json.loads(line)
            whole = isinstance(row["number"], int) and row["number"] >= 0 and isinstance(row["text"], str)
            if whole and isinstance(row["elements"], Mapping):
                found.append(row)
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _box(action: str, elements: Mapping[str, Any]) -> Box | None:
    """Of the element that an action names; None for one that names none, or none that was there."""
    named = _ON_ELEMENT.match(action.strip())
    if named is None:
        return None
    try:
        x, y, width, height = map(float, elements[named[1] or named[2]]["box"])
    except (KeyError, TypeError, ValueError):
        return None
    return (x, y, width, height)
