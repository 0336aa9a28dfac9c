"""Digest of a root file system as programs see it, independent of where and by whom it was unpacked."""

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from lemur_ray.sandbox.backends.keeper_client import NOT_OF_ROOTFS


def digest(root: str) -> str:
    """Hash (16 hex digits) of names, executable bits, link targets and contents below the folder ``root``; if it is no
    folder, ``root`` itself is returned. Links are not followed: an absolute one leads elsewhere on this machine than
    inside. Owners, times, top-level folders that no sandbox shows (``/proc``, ``/tmp``) and contents of files that
    others may not read are excluded."""
    place = Path(root).expanduser()
    if not root or not place.is_dir():
        return root
    together = hashlib.sha256()
    for path in _beneath(place, NOT_OF_ROOTFS):
        text = f"{path.relative_to(place).as_posix()}\0{_entry_text(path)}\0"
        together.update(text.encode("utf-8", "surrogateescape"))
    return together.hexdigest()[:16]


def _beneath(folder: Path, without: set[str]) -> Iterator[Path]:
    """All paths in a folder, sorted by name, without the top-level names in ``without``."""
    try:
        names = sorted(os.listdir(folder), key=os.fsencode)
    except PermissionError:
        return
    for name in names:
        path = folder / name
        if name not in without:
            yield path
            if path.is_dir() and not path.is_symlink():
                yield from _beneath(path, set())


def _entry_text(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return f"l {os.readlink(path)}"
    if not stat.S_ISREG(mode):
        return "d" if stat.S_ISDIR(mode) else "o"
    kind = "x" if mode & stat.S_IXOTH else "f"
    if not mode & stat.S_IROTH:
        return kind
    with path.open("rb") as file:
        return f"{kind} {hashlib.file_digest(file, 'sha256').hexdigest()}"
