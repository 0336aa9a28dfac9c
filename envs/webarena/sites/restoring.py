"""Restores a site's folder to its golden copy (its initial state) while the site goes on serving.

Databases are restored by SQLite's backup into the same file, so that open connections see the restored rows. Other
files are replaced if they differ in size or modification time."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite writes for one database."""
OWN = frozenset({"log", "before.php", "routes.php", "conf/local.php"})
"""Files of a live folder that are never restored: the program's output, and settings that hold the folder's path."""


def copy(golden: Path, live: Path) -> None:
    """Copy a golden folder to the folder ``live``, with modification times, which ``restore`` compares."""
    shutil.copytree(golden, live, dirs_exist_ok=True)


def restore(golden: Path, live: Path, database: str) -> None:
    """Restore ``live``, a copy of ``golden`` by ``copy``, while the site serves: the rows of ``database`` (path of its
    SQLite file in both; empty: none) and every file whose size or modification time differs. Added files are removed,
    those in ``OWN`` stay. After an OSError or sqlite3.Error ``live`` may be half restored: start the site anew."""
    if database:
        with closing(sqlite3.connect(golden / database)) as source, closing(sqlite3.connect(live / database)) as target:
            source.backup(target)
    skipped = OWN | ({f"{database}{suffix}" for suffix in DATABASE_SUFFIXES} if database else set())
    wanted, current = _files(golden), _files(live)
    for name in current.keys() - wanted.keys() - skipped:
        (live / name).unlink(missing_ok=True)
    for name in wanted.keys() - skipped:
        if current.get(name) != wanted[name]:
            (live / name).parent.mkdir(parents=True, exist_ok=True)
            _replace(golden / name, live / name)


def _replace(source: Path, target: Path) -> None:
    """Replace a file atomically: a concurrent request sees the old file or the new one."""
    part = target.with_name(f"{target.name}.part")
    shutil.copy2(source, part)
    os.replace(part, target)


def _files(folder: Path, below: str = "") -> dict[str, tuple[int, int]]:
    """Return size in bytes and modification time in ns of each file, by its path relative to the top folder."""
    files: dict[str, tuple[int, int]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                files |= _files(Path(entry.path), f"{name}/")
            else:
                status = entry.stat(follow_symlinks=False)
                files[name] = status.st_size, status.st_mtime_ns
    return files
