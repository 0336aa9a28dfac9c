"""Create and extract deterministic tar archives of a file or folder.

An archive is a tar of names, modes and bytes in the order of the names, without owners, and with modification times
only if ``dated``. A single file is an archive with one member. Content that would mean something else on another host,
such as a link that leaves the folder, is rejected here, where the user can correct it."""

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.storage.bundles.bundle import BundleError

_FIXED_TIME_S = 315_532_800
"""1980-01-01, the earliest time that all archive formats can represent."""


def pack(source: Path, archive: Path, *, dated: bool = False) -> str:
    """Write the archive of ``source``; returns its SHA-256 in hex. dated: keep modification times. Raises BundleError
    if ``source`` cannot be archived, OSError if writing fails."""
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in members(source):
            entry = _entry(name, path, dated)
            if not entry.isreg():
                tar.addfile(entry)
                continue
            try:
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            except PermissionError as error:
                raise BundleError(f"{path}: cannot be read ({error.strerror}), so it cannot be shipped") from error
            except OSError as error:
                if error.errno:
                    raise
                raise BundleError(f"{path}: was written to while it was packed; start again once it stands") from error
    with archive.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest()


def packed_size(source: Path) -> int:
    """Approximate upper bound in bytes for the size of the archive of ``source``. Raises BundleError as ``pack``."""
    return 10_240 + sum(2048 + path.lstat().st_size for _, path in members(source))


def content_size(source: Path) -> int:
    """Total bytes of files in ``source``, a lower bound for its archive. Raises BundleError if it is unreadable."""
    return sum(path.lstat().st_size for _, path in members(source) if path.is_file() and not path.is_symlink())


def members(source: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name in the archive, path) of each member of ``source``, sorted. Raises BundleError without any file."""
    if not source.exists():
        raise BundleError(f"{source}: is not there, so it cannot be shipped to other hosts")
    if not source.is_dir():
        if not source.is_file():
            raise BundleError(f"{source}: is {_kind(source.stat().st_mode)}; only files and folders can be shipped")
        yield source.name, source.resolve()
        return
    entries = sorted(_walk(source, ""), key=lambda one: os.fsencode(one[0]))
    if not any(path.is_symlink() or not path.is_dir() for _, path in entries):
        raise BundleError(f"{source}: there is no file in it, so there is nothing to ship; is it the right folder?")
    yield from entries


def _walk(folder: Path, above: str) -> Iterator[tuple[str, Path]]:
    try:
        with os.scandir(folder) as entries:
            listed = list(entries)
    except PermissionError as error:
        raise BundleError(f"{folder}: cannot be read ({error.strerror}), so it cannot be shipped") from error
    for entry in listed:
        name = f"{above}{entry.name}"
        yield name, Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{name}/")


def _entry(name: str, path: Path, dated: bool) -> tarfile.TarInfo:
    status = path.lstat()
    entry = tarfile.TarInfo(name)
    entry.mode = stat.S_IMODE(status.st_mode) & 0o777
    entry.mtime = int(status.st_mtime) if dated else _FIXED_TIME_S
    if stat.S_ISDIR(status.st_mode):
        entry.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(status.st_mode):
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
        _check_link(name, path, entry.linkname)
    elif stat.S_ISREG(status.st_mode):
        entry.size = status.st_size
    else:
        kind = _kind(status.st_mode)
        raise BundleError(f"{path}: is {kind}; only files, folders and links can be shipped: remove it")
    return entry


def _check_link(name: str, path: Path, target: str) -> None:
    """Raise BundleError for a symbolic link that leads, directly or through other links, out of the archived folder."""
    top = path
    for _ in name.split("/"):
        top = top.parent
    inside = os.path.normpath(os.path.join(os.path.dirname(name), target))
    real = Path(os.path.realpath(path))
    out = os.path.isabs(target) or inside.split("/")[0] == ".."
    if out or not real.is_relative_to(os.path.realpath(top)):
        raise BundleError(
            f"{path}: a link to {target}, which is outside of what is shipped: put what it means in its place"
        )


def _kind(mode: int) -> str:
    kinds = {stat.S_ISSOCK: "a socket", stat.S_ISFIFO: "a pipe", stat.S_ISBLK: "a device", stat.S_ISCHR: "a device"}
    return next((kind for matches, kind in kinds.items() if matches(mode)), "no file")


def unpack(archive: Path, folder: Path, what: str) -> None:
    """Extract an archive, with the original modes and times, into ``folder``, which must not exist. what: its name for
    messages. Raises BundleError if it cannot be extracted, and OSError if the folder exists or the disk is full; the
    folder may then be half filled."""
    folder.mkdir()
    try:
        with tarfile.open(archive) as tar:
            entries = tar.getmembers()
            tar.extractall(folder, entries, filter="data")
        for entry in reversed(entries):  # the filter restricts modes, but tasks in a sandbox depend on them
            if not entry.issym():
                os.utime(folder / entry.name, (entry.mtime, entry.mtime))
                (folder / entry.name).chmod(entry.mode)
    except (tarfile.TarError, EOFError, OSError) as error:
        if is_full_disk(error):
            raise
        raise BundleError(f"{what}: cannot be unpacked ({error}); was it made by another program?") from error
