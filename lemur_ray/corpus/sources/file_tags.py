"""Tags of the content of files: two files with equal tags and sizes have equal content.

A tag is the hash of a local file, or, for large and remote files, the path with the modification time or the version
that a bucket or server reports. Hashes are remembered by path, size and modification time in ``tags.json`` of the build
folder, so that a file is hashed once."""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lemur_ray.corpus.rows import write_atomically
from lemur_ray.corpus.sources.file_refs import FileRef

_FILE = "tags.json"
_HASHED_BYTES = 256 << 20
"""A larger local file is tagged by its modification time: hashing it would take about as long as cleaning it."""


def file_tags(folder: Path, refs: Sequence[FileRef]) -> dict[str, str]:
    """Tag of each file by its path: a hash of its content, or for large and remote files the path with time or version;
    "" for a missing file. Hashes new local files, in threads. folder: build folder; its ``tags.json`` is updated."""
    try:
        known = json.loads((folder / _FILE).read_bytes())
    except (OSError, ValueError):
        known = {}
    tags = {ref.path: f"{ref.path} {ref.version}" for ref in refs if ref.version or "://" in ref.path}
    local = sorted({ref.path for ref in refs} - tags.keys())
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        states = dict(zip(local, threads.map(lambda path: _state(path, known.get(path)), local), strict=True))
    write_atomically(folder / _FILE, json.dumps(states, sort_keys=True).encode(), durable=False)
    return {
        **tags,
        **{path: f"{tag} {path}" if tag.startswith("mtime ") else tag for path, (_, _, tag) in states.items()},
    }


def _state(path: str, known: Sequence[int | str] | None) -> tuple[int, int, str]:
    """(size in bytes, modification time in ns, tag) of a local file."""
    try:
        about = os.stat(path)
        if known and list(known[:2]) == [about.st_size, about.st_mtime_ns]:
            return about.st_size, about.st_mtime_ns, str(known[2])
        if about.st_size > _HASHED_BYTES:
            return about.st_size, about.st_mtime_ns, f"mtime {about.st_mtime_ns}"
        with open(path, "rb") as file:
            return about.st_size, about.st_mtime_ns, hashlib.file_digest(file, "sha256").hexdigest()[:20]
    except OSError:
        return 0, 0, ""
