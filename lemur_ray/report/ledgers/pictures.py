"""Pictures that an episode kept, put beside a report so that its pages can show them, and found again by turn.

Each is linked, or copied where it cannot be, so that the folder of a report can be moved. Only PNG files are taken:
what a ledger names is not to be trusted. Knows no page and no benchmark.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.discovery import episode_views
from lemur_ray.benchmarks.episode_artifacts import View
from lemur_ray.benchmarks.plugin_metadata import stored_benchmark_name
from lemur_ray.rollout.evaluation_folder import PLUGIN_METADATA, SETTINGS, EvaluationError, load_settings

FOLDER = "pictures"
MOST_BYTES = 8 << 20
MOST_PIXELS = 20_000
"""Wide or high."""
_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


@dataclass(frozen=True)
class TurnPicture:
    """What was seen after a turn. ``address``: of its picture from the page, empty where there is none; ``size``: of
    the picture, in pixels."""

    view: View
    address: str = ""
    size: tuple[int, int] = (0, 0)


def pictured(episode: Episode, anchor: str, out: Path, up: str, ledger: Path | None = None) -> dict[int, TurnPicture]:
    """By turn, with pictures in ``out``. ``up``: the way from the page to ``out``. ``ledger``: the file of the episode,
    beside which stands by which name its benchmark was played."""
    found = {}
    key = episode.key
    told = _settings(ledger.parent).get(key.recipe, {}).get(PLUGIN_METADATA) if ledger else None
    for view in episode_views(episode, stored_benchmark_name(told, key.benchmark, key.policy)):
        size = _size(view.picture)
        name = f"{FOLDER}/{anchor}-{view.turn:02d}.png"
        if size is None or view.picture is None or not _put(view.picture, out / name):
            found[view.turn] = TurnPicture(view)
        else:
            found[view.turn] = TurnPicture(view, f"{up}{name}", size)
    return found


def _settings(folder: Path) -> Mapping[str, Any]:
    try:
        return _read(folder, (folder / SETTINGS).stat().st_mtime_ns)
    except (OSError, EvaluationError):
        return {}


@lru_cache(maxsize=16)
def _read(folder: Path, written_ns: int) -> Mapping[str, Any]:
    """Once for each version of the file."""
    return load_settings(folder)


def _size(picture: Path | None) -> tuple[int, int] | None:
    """None for what is no PNG file of a size that a page can show."""
    if picture is None or picture.is_symlink():
        return None
    try:
        with picture.open("rb") as file:
            head = file.read(24)
            length = os.fstat(file.fileno()).st_size
    except OSError:
        return None
    if len(head) < 24 or not head.startswith(_PNG) or length > MOST_BYTES:
        return None
    wide, high = struct.unpack(">II", head[16:])
    return (wide, high) if 0 < wide <= MOST_PIXELS and 0 < high <= MOST_PIXELS else None


def _put(picture: Path, target: Path) -> bool:
    """Whether it is there now."""
    try:
        if target.exists() and target.stat().st_size == picture.stat().st_size:
            return True
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(picture, target)
        except OSError:  # another disk, or one without links
            shutil.copyfile(picture, target)
    except OSError:
        return False
    return True
