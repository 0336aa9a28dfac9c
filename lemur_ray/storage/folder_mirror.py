"""What a folder of a bucket holds now, on a disk of this host: small files, and files that grow while they are read.

Unlike ``copies``, what is read is not what was published once. Knows nothing of what is in the files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lemur_ray.host.home import lemur_home
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.growing_file import INDEX, PIECES, list_growing_files, read_growing


def mirror_files(url: str, names: Sequence[str]) -> Path:
    """A folder of this host with those of the named files of a folder in a bucket that are there, as they are now.

    Raises OSError, ImportError.
    """
    folder = _place_of(url)
    for name in names:
        try:
            download_file(f"{url}/{name}", folder / name)
        except FileNotFoundError:
            (folder / name).unlink(missing_ok=True)
    return folder


def mirror_growing_files(url: str, growing: str, small: Sequence[str]) -> list[Path]:
    """Of every file called ``growing`` beneath a folder in a bucket a copy as it is now, with its ``small`` files.

    The time of a copy is that of the last commit. Raises OSError, ImportError.
    """
    fs, there = file_system(url)
    pieces, whole = list_growing_files(url, growing)
    paths = []
    for name in sorted({*pieces, *(one for one in whole if one.rsplit("/", 1)[-1] == growing)}):
        path, beside = _place_of(url) / name, name.removesuffix(growing).rstrip("/")
        if name not in pieces or not read_growing(f"{url}/{name}", path):
            download_file(f"{url}/{name}", path)
        written = fs.modified(f"{there}/{name}{PIECES}/{INDEX}" if name in pieces else f"{there}/{name}").timestamp()
        os.utime(path, (written, written))
        mirror_files(f"{url}/{beside}".rstrip("/"), small)
        paths.append(path)
    return paths


def download_file(url: str, path: Path) -> None:
    """One object as a file, whole or not at all. Raises OSError, FileNotFoundError where there is none."""
    fs, there = file_system(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        fs.get_file(there, str(partial))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def display_name(path: Path) -> str:
    """How a folder is named to people: by its URL where ``mirror_files`` made it."""
    if not path.is_relative_to(_shelf()):
        return str(path)
    scheme, *rest = path.relative_to(_shelf()).parts
    return f"{scheme}://{'/'.join(rest)}"


def _shelf() -> Path:
    return lemur_home() / "copies" / "of"


def _place_of(url: str) -> Path:
    scheme, _, rest = url.partition("://")
    return _shelf() / scheme / rest.strip("/")
