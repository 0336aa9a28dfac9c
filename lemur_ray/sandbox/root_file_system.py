"""What a given root file system shows to programs, as a digest that is the same wherever it was unpacked.

Knows no sandbox that shows it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from lemur_ray.sandbox.backends.keeper_client import NOT_OF_ROOTFS


def digest(root: str) -> str:
    """16 hex digits over names, permissions to execute, ends of links and contents; the text itself where it is no
    folder.

    A link counts for the text it holds: on this machine an absolute one leads to another file than inside. Owners,
    times, what no sandbox shows (``/proc``, ``/tmp``) and the contents of what others may not read are no part of it,
    so that who unpacked it does not matter.
    """
    place = Path(root).expanduser()
    if not root or not place.is_dir():
        return root
    together = hashlib.sha256()
    for path in _beneath(place, NOT_OF_ROOTFS):
        said = f"{path.relative_to(place).as_posix()}\0{_said(path)}\0"
        together.update(said.encode("utf-8", "surrogateescape"))
    return together.hexdigest()[:16]


def _beneath(folder: Path, without: set[str]) -> Iterator[Path]:
    """Everything in a folder in the order of the names, but for some names at its top."""
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


def _said(path: Path) -> str:
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
