"""Where a fetched file came from, written beside it: ``FOLDER/.provenance/NAME.json``. Knows no network."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lemur_ray.host.json_files import NotJson, read_json

FOLDER = ".provenance"
"""Hidden, so that whoever reads a folder of data does not take it for data."""


def place(path: Path) -> Path:
    """Of a file's or folder's provenance."""
    return path.parent / FOLDER / f"{path.name}.json"


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Says of ``path`` what the record says, and today's date. Whole or not at all."""
    write_whole(place(path), json.dumps({**record, "fetched": today()}, indent=2) + "\n")


def read(path: Path) -> dict[str, Any]:
    """What is known of ``path``; nothing where somebody brought it."""
    try:
        found = read_json(place(path))
    except (FileNotFoundError, NotJson, NotADirectoryError):
        return {}
    return found if isinstance(found, dict) else {}


def write_whole(path: Path, text: str) -> None:
    """A small file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def today() -> str:
    """Now, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
