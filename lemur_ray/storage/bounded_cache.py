"""A cache of folders on the disk of this host, shared by its processes, with a limit on the total size.

::

    <folder>/<name>/        an entry
             <name>.lock    exclusive lock while the entry is made or removed, shared lock while it is in use

One process makes an entry while others wait; it appears by a rename. When the total exceeds the limit, entries that are
not in use are evicted, least recently used first."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.host.file_lock import POLL_S, take
from lemur_ray.host.full_disk import is_full_disk

_WAIT_S = 3600.0
"""Maximum wait for another process that makes the same entry; making one takes less."""
_OLD_S = 86_400.0  # age of an abandoned temporary folder of an archive
MARGIN_BYTES = 2**20
"""Free disk space to leave, for files written next to an entry."""


@dataclass(frozen=True)
class BoundedCache:
    """A cache of folders below ``folder``. Its limit in gigabytes (10^9 bytes) comes from the environment variable
    ``variable``, by default ``default_gb``; methods raise ``error``."""

    folder: Path
    """Absolute path; created if missing."""
    variable: str
    """Environment variable with the limit in gigabytes."""
    error: type[Exception]
    """Exception class that the methods raise, with a one-sentence message."""
    default_gb: float = 50

    def acquire(self, name: str, make: Callable[[], None]) -> int:
        """Make the entry ``name`` if missing and lock it against eviction; returns the file descriptor of the lock.
        Closing the descriptor unlocks it. make: prepares the entry and renames it to ``folder / name``; one process
        calls it, while others wait. Raises ``error`` if that takes an hour, OSError, errors of ``make``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        copy, lock = self.folder / name, self._lock_of(name)
        deadline = time.monotonic() + _WAIT_S
        try:
            while True:
                fcntl.flock(lock, fcntl.LOCK_SH)
                if copy.is_dir():
                    os.utime(lock)  # time of last use
                    return lock
                if take(lock):
                    if not copy.is_dir():
                        make()
                elif time.monotonic() >= deadline:
                    raise self.error(f"{copy}: another process has held it for {_WAIT_S:g} s without making anything")
                else:  # who makes it meanwhile keeps a shared lock: do not wait for the exclusive one
                    fcntl.flock(lock, fcntl.LOCK_UN)
                    time.sleep(POLL_S)
        except BaseException:
            os.close(lock)
            raise

    @contextlib.contextmanager
    def staging_folder(self, name: str, needed: int, what: str) -> Iterator[Path]:
        """Context manager: an empty temporary folder in which to prepare the entry ``name``, removed afterwards. Other
        entries are evicted first to fit ``needed`` bytes. Raises ``error`` if the disk has no room; ``what`` describes
        the entry in its message."""
        self.make_room(needed)
        self.check_room(needed + MARGIN_BYTES, what)
        half = self.folder / f".making-{name}"
        remove_tree(half)  # left by a killed process
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
        """Maximum total bytes of the entries. Raises ``error`` if the variable is not a number from 0 to 10^6."""
        named = os.environ.get(self.variable) or f"{self.default_gb:g}"
        try:
            limit_gb = float(named)
        except ValueError:
            limit_gb = -1.0
        if not 0 <= limit_gb < 1e6:
            raise self.error(f"{self.variable}={named}: expected a number of gigabytes, 0 or more")
        return int(limit_gb * 10**9)

    def check_room(self, needed: int, what: str) -> None:
        """Raise ``error`` if fewer than ``needed`` bytes of disk are free. ``what``: their use, for the message."""
        if shutil.disk_usage(self.folder).free < needed:
            raise self.error(self.no_room(needed, what))

    def no_room(self, needed: int, what: str) -> str:
        """Message that the disk lacks ``needed`` free bytes for ``what``, with advice."""
        free = shutil.disk_usage(self.folder).free
        return (
            f"{self.folder}: {needed} bytes are needed for {what}, {free} are free: make room there, or set LEMUR_HOME "
            "to a folder on a larger disk"
        )

    def make_room(self, more: int) -> None:
        """Evict unused entries, least recently used first, until ``more`` bytes fit in the limit or all are in use.
        Raises ``error`` if the limit is invalid."""
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

    @contextlib.contextmanager
    def _taken(self, name: str) -> Iterator[bool]:
        """Context manager: whether the entry ``name`` is not in use, and so is locked until the end of the block."""
        lock = self._lock_of(name)
        try:
            yield take(lock)
        finally:
            os.close(lock)

    def _sweep(self) -> None:
        """Remove temporary folders of killed processes: entries being made, removed, or archived (after a day)."""
        for half in [*self.folder.glob(".making-*"), *self.folder.glob(".gone-*")]:
            with self._taken(half.name.partition("-")[2]) as is_free:
                if is_free:
                    remove_tree(half)
        for packing in self.folder.glob(".packing-*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - packing.stat().st_mtime > _OLD_S:
                    remove_tree(packing)

    def _remove(self, name: str) -> bool:
        """Remove an entry unless it is in use; returns whether it was removed."""
        with self._taken(name) as is_free:
            if is_free:
                gone = self.folder / f".gone-{name}"
                remove_tree(gone)
                with contextlib.suppress(FileNotFoundError):  # another process evicted it
                    (self.folder / name).rename(gone)
                remove_tree(gone)
            return is_free


def remove_tree(folder: Path) -> None:
    """Remove a folder, including read-only subfolders; errors (also a missing folder) are ignored."""
    for inside, names, _ in os.walk(folder):
        for name in names:
            if not (path := Path(inside, name)).is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def tree_size(folder: Path) -> int:
    """Total bytes of all files below a folder, skipping those that another process removes meanwhile."""
    total = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(inside, name).lstat().st_size
    return total
