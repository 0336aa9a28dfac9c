"""Screenshots of episodes, linked into the folder of a report so that its pages can show them.

A file that cannot be hard-linked is copied, so that the folder can be moved. Only PNG files are accepted, since paths
in a ledger are not to be trusted. Knows no page and no benchmark."""

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
MAX_BYTES = 8 << 20
MAX_PIXELS = 20_000
"""Maximum width and height of a picture."""
_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


@dataclass(frozen=True)
class TurnPicture:
    """What a page shows of an environment after a turn. ``view``: as the environment stored it. ``address``: of its
    picture relative to the page, empty without one; ``size``: the picture's width and height in pixels."""

    view: View
    address: str = ""
    size: tuple[int, int] = (0, 0)


def turn_pictures(
    episode: Episode, anchor: str, out: Path, up: str, ledger: Path | None = None
) -> dict[int, TurnPicture]:
    """Screenshots and texts of an episode by turn (0: before the first reply); pictures are linked or copied into
    ``out``. ``anchor``: the episode's id, for file names. ``up``: address of ``out`` relative to the page. ``ledger``:
    the file of the episode, next to which the settings name its benchmark."""
    pictures = {}
    key = episode.key
    stored_notes = _settings(ledger.parent).get(key.recipe, {}).get(PLUGIN_METADATA) if ledger else None
    for view in episode_views(episode, stored_benchmark_name(stored_notes, key.benchmark, key.policy)):
        size = _size(view.picture)
        name = f"{FOLDER}/{anchor}-{view.turn:02d}.png"
        if size is None or view.picture is None or not _put(view.picture, out / name):
            pictures[view.turn] = TurnPicture(view)
        else:
            pictures[view.turn] = TurnPicture(view, f"{up}{name}", size)
    return pictures


def _settings(folder: Path) -> Mapping[str, Any]:
    try:
        return _read(folder, (folder / SETTINGS).stat().st_mtime_ns)
    except (OSError, EvaluationError):
        return {}


@lru_cache(maxsize=16)
def _read(folder: Path, written_ns: int) -> Mapping[str, Any]:
    """Settings in the folder, read once per modification time."""
    return load_settings(folder)


def _size(picture: Path | None) -> tuple[int, int] | None:
    """Width and height; None for a file that is no PNG, or too large for a page."""
    if picture is None or picture.is_symlink():
        return None
    try:
        with picture.open("rb") as file:
            head = file.read(24)
            length = os.fstat(file.fileno()).st_size
    except OSError:
        return None
    if len(head) < 24 or not head.startswith(_PNG) or length > MAX_BYTES:
        return None
    width, height = struct.unpack(">II", head[16:])
    return (width, height) if 0 < width <= MAX_PIXELS and 0 < height <= MAX_PIXELS else None


def _put(picture: Path, target: Path) -> bool:
    """Link or copy the picture to ``target``. Returns whether ``target`` exists afterwards."""
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
