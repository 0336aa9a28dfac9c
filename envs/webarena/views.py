"""Reads an episode's artefacts for report pages: the accessibility tree, and maybe a screenshot, before each turn.

``BrowserPlay`` writes their folder (option ``--artefacts``)."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from envs.webarena.run_notes import counts_of
from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.episode_artifacts import Box, View

PictureKind = Literal["", "plain", "marked"]
"""Screenshots that the model is shown: none, as the browser shows the page, or with a frame and id on each element."""
TREES = "trees.jsonl"
MOST_BYTES = 64 << 20
"""Maximum size of a tree file; a larger one is ignored."""
_ON_ELEMENT = re.compile(r"(?:click|hover|type)\s*(?:\[(\d+)\]|\(id=(\d+))")


def picture_name(turn: int) -> str:
    """Return the file name of the screenshot before a turn (from 0); the last page counts as one more turn."""
    return f"{turn:02d}.png"


def views(episode: Episode) -> Sequence[View]:
    """Return an episode's artefacts in order of turns; empty if none were stored or they are on another machine."""
    folder = counts_of(episode).get("artefacts")
    if not isinstance(folder, str) or not folder:
        return ()
    steps = episode.trajectory.steps
    shown = []
    for row in _rows(Path(folder) / TREES):
        turn = row["number"]
        picture = Path(folder) / picture_name(turn)
        action = (steps[turn].action or "") if turn < len(steps) else ""
        shown.append(View(turn, picture if picture.is_file() else None, row["text"], _box(action, row["elements"])))
    return shown


def _rows(file: Path) -> list[Mapping[str, Any]]:
    """Return the complete rows of a tree file; the last may be cut off. Empty if the file is missing or too large."""
    try:
        if file.stat().st_size > MOST_BYTES:
            return []
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
            whole = isinstance(row["number"], int) and row["number"] >= 0 and isinstance(row["text"], str)
            if whole and isinstance(row["elements"], Mapping):
                rows.append(row)
        except (ValueError, KeyError, TypeError):
            continue
    return rows


def _box(action: str, elements: Mapping[str, Any]) -> Box | None:
    """Return the box of the element that an action names; None without one, or if the observation lacks it."""
    named = _ON_ELEMENT.match(action.strip())
    if named is None:
        return None
    try:
        x, y, width, height = map(float, elements[named[1] or named[2]]["box"])
    except (KeyError, TypeError, ValueError):
        return None
    return (x, y, width, height)
