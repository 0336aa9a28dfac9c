"""Provenance records of fetched files, stored in ``FOLDER/.provenance/NAME.json``. Knows no network."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lemur_ray.host.json_files import NotJson, read_json

FOLDER = ".provenance"
"""Subfolder of the records; hidden, so that readers of a data folder ignore it."""


def place(path: Path) -> Path:
    """Path of the provenance record of a file or folder; it may not exist."""
    return path.parent / FOLDER / f"{path.name}.json"


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Store the record of ``path`` atomically, with the present time (ISO 8601, UTC) as ``fetched``."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write_whole(place(path), json.dumps({**record, "fetched": now}, indent=2) + "\n")


def read(path: Path) -> dict[str, Any]:
    """The stored record of ``path``; empty if it is invalid or missing, because the project did not fetch the file."""
    try:
        record = read_json(place(path))
    except (FileNotFoundError, NotJson, NotADirectoryError):
        return {}
    return record if isinstance(record, dict) else {}


def write_whole(path: Path, text: str) -> None:
    """Write a small text file (UTF-8) atomically and create its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
