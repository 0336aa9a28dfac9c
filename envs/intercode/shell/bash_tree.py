"""Builds InterCode-Bash's four file trees as folders from their manifests.

A manifest lists path, mode, type (dir or file), content (``text`` or ``b64``) and, if it matters, mtime."""

import base64
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from lemur_ray.host.json_files import read_json

OLD_S = 2 * 86_400.0
"""Age in seconds after which a built tree counts as unused and is removed."""


def make_tree(manifest: Path, folder: Path, *, keep_empty_folders: bool) -> dict[str, Path]:
    """Build the tree below ``folder``. Returns path in the sandbox -> source on this machine, for each top-level entry.
    Entries without an mtime get the present time, and must stay young, so a new tree is built for each hour. A tree is
    never changed while other processes may read it; trees older than ``OLD_S`` are removed. Upstream's first reset
    deletes folders without a file below them, as does ``keep_empty_folders`` False. Raises ValueError if the manifest
    is invalid."""
    entries = _read(manifest)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        with suppress(FileNotFoundError):  # renamed or removed by another process since it was listed
            if time.time() - old.stat().st_ctime > OLD_S:
                shutil.rmtree(old, ignore_errors=True)
    finished = folder / time.strftime("%Y%m%d%H", time.gmtime())
    if not finished.is_dir():
        making = Path(tempfile.mkdtemp(prefix=".", dir=folder))
        _fill(making, entries, keep_empty_folders)
        making.chmod(0o755)
        try:
            making.rename(finished)
        except OSError:  # another process was faster
            shutil.rmtree(making)
    return {f"/{child.name}": child for child in sorted(finished.iterdir())}


def _fill(folder: Path, entries: list[dict[str, Any]], keep_empty_folders: bool) -> None:
    files = [entry["path"] for entry in entries if entry["type"] == "file"]
    dated: list[tuple[Path, dict[str, Any]]] = []
    for entry in entries:
        path = folder / entry["path"].lstrip("/")
        if entry["type"] == "dir":
            if not keep_empty_folders and not any(file.startswith(entry["path"] + "/") for file in files):
                continue
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(entry["b64"]) if "b64" in entry else entry["text"].encode())
        dated.append((path, entry))
    for path, entry in reversed(dated):
        path.chmod(int(entry["mode"], 8))
        if "mtime" in entry:
            os.utime(path, (entry["mtime"], entry["mtime"]))


def _read(manifest: Path) -> list[dict[str, Any]]:
    entries = read_json(manifest)
    for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
        path = PurePosixPath(str(entry.get("path", ""))) if isinstance(entry, dict) else PurePosixPath()
        right = path.is_absolute() and ".." not in path.parts and entry.get("type") in ("dir", "file")
        if not right or (entry["type"] == "file" and "text" not in entry and "b64" not in entry):
            raise ValueError(f"{manifest}, entry {number}: expected an absolute path, a type and a file's content")
    return entries
