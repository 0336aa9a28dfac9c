"""A folder of this host that holds copies: each made once, whole or not at all, all of them within a limit of bytes.

::

    <shelf>/<name>/        a copy
            <name>.lock    held alone by who makes or removes it, together by who uses it

What nobody uses is removed, the longest unused first, where all of it together is more than the limit. Knows nothing of
what is copied.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.host.file_lock import take
from lemur_ray.host.full_disk import is_full_disk

_GB = 10**9
_WAIT_S = 3600.0
"""For another process that makes the same: longer than any does."""
_OLD_S = 86_400.0
MARGIN_BYTES = 2**20
"""Of a disk that stay free, for what is written beside a copy."""


@dataclass(frozen=True)
class BoundedCache:
    """Where copies lie and how many bytes they may take."""

    folder: Path
    """Absolute; made where it is not there."""
    variable: str
    """Environment variable of the limit, in gigabytes."""
    error: type[Exception]
    """What is raised, with one sentence."""
    default_gb: float = 50

    def acquire(self, name: str, make: Callable[[], None]) -> int:
        """The descriptor of a lock that is shared with other users, while the copy is there; closing it ends the use.

        make: puts the copy at ``folder / name`` by renaming; called by one process of those that ask, and not where the
        copy is there. Raises ``error``, OSError, and what ``make`` raises.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        copy, lock = self.folder / name, self._lock_of(name)
        try:
            while True:
                fcntl.flock(lock, fcntl.LOCK_SH)
                if copy.is_dir():
                    os.utime(lock)  # used now
                    return lock
                if not take(lock, wait_s=_WAIT_S):
                    raise self.error(f"{copy}: another process has held it for {_WAIT_S:g} s without making anything")
                if not copy.is_dir():
                    make()
        except BaseException:
            os.close(lock)
            raise

    @contextlib.contextmanager
    def staging_folder(self, name: str, needed: int, what: str) -> Iterator[Path]:
        """An empty folder with room for so many bytes, removed in the end; for ``make``, which renames what it made.

        Raises ``error`` where the disk has no room for ``what``.
        """
        self.make_room(needed)
        self.check_room(needed + MARGIN_BYTES, what)
        half = self.folder / f".making-{name}"
        remove_tree(half)  # of a process that was killed
        half.mkdir()
        try:
            yield half
        except OSError as error:
            if not is_full_disk(error):
                raise
            raise self.error(self.no_room(needed, what)) from error
        finally:
            remove_tree(half)

    def limit_bytes(self) -> int:
        """Raises ``error``."""
        named = os.environ.get(self.variable) or f"{self.default_gb:g}"
        try:
            limit_gb = float(named)
        except ValueError:
            limit_gb = -1.0
        if not 0 <= limit_gb < 1e6:
            raise self.error(f"{self.variable}={named}: expected a number of gigabytes, 0 or more")
        return int(limit_gb * _GB)

    def check_room(self, needed: int, what: str) -> None:
        """Raises ``error`` where the disk has less."""
        if shutil.disk_usage(self.folder).free < needed:
            raise self.error(self.no_room(needed, what))

    def no_room(self, needed: int, what: str) -> str:
        """The sentence about a disk that is too small."""
        free = shutil.disk_usage(self.folder).free
        return (
            f"{self.folder}: {needed} bytes are needed for {what}, {free} are free: make room there, or set LEMUR_HOME "
            "to a folder on a larger disk"
        )

    def make_room(self, more: int) -> None:
        """Remove what nobody uses, the longest unused first, until ``more`` bytes fit in the limit, as far as one can.

        Raises ``error`` where the limit is none."""
        limit = self.limit_bytes()
        self._sweep()
        unused = sorted((lock.stat().st_mtime_ns, lock.stem) for lock in self.folder.glob("*.lock"))
        sizes = {name: tree_size(self.folder / name) for _, name in unused if (self.folder / name).is_dir()}
        total = sum(sizes.values())
        for _, name in unused:
            if total + more <= limit:
                return
            if name in sizes and self._remove(name):
                total -= sizes[name]

    def _lock_of(self, name: str) -> int:
        return os.open(self.folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _sweep(self) -> None:
        """Remove what processes left behind that were killed."""
        for half in [*self.folder.glob(".making-*"), *self.folder.glob(".gone-*")]:
            lock = self._lock_of(half.name.partition("-")[2])
            try:
                if take(lock):
                    remove_tree(half)
            finally:
                os.close(lock)
        for packing in self.folder.glob(".packing-*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - packing.stat().st_mtime > _OLD_S:
                    remove_tree(packing)

    def _remove(self, name: str) -> bool:
        """Whether nobody used a copy, which is then gone."""
        lock = self._lock_of(name)
        try:
            if not take(lock):
                return False
            gone = self.folder / f".gone-{name}"
            remove_tree(gone)
            with contextlib.suppress(FileNotFoundError):  # another process made room, too
                (self.folder / name).rename(gone)
            remove_tree(gone)
            return True
        finally:
            os.close(lock)


def remove_tree(folder: Path) -> None:
    """Remove a folder, also where what is in it may not be written to."""
    for inside, names, _ in os.walk(folder):
        for name in names:
            if not (path := Path(inside, name)).is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def tree_size(folder: Path) -> int:
    """Bytes of all files in a folder, which another process may be removing."""
    total = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(inside, name).lstat().st_size
    return total
