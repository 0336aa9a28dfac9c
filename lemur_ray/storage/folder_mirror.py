"""Local copies of files in a bucket that other hosts still change: small files, and files that only grow."""

import os
from collections.abc import Sequence
from pathlib import Path

from lemur_ray.host.home import lemur_home
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.growing_file import INDEX, PIECES, list_growing_files, read_growing
from lemur_ray.storage.published_folder import replaced_file


def mirror_files(url: str, names: Sequence[str]) -> Path:
    """Download the current versions of the named files of a bucket folder; returns the local folder of the copies.
    Copies of files that the bucket does not have are removed. Raises OSError if the bucket or the local disk fails,
    ImportError if the bucket's client is not installed."""
    folder = _copy_path(url)
    for name in names:
        try:
            download_file(f"{url}/{name}", folder / name)
        except FileNotFoundError:
            (folder / name).unlink(missing_ok=True)
    return folder


def mirror_growing_files(url: str, growing: str, small: Sequence[str]) -> list[Path]:
    """Download all files named ``growing`` at any depth of a bucket folder; returns the paths of the local copies.
    small: names of files to download from the folder of each. The modification time of a copy is that of the last write
    in the bucket. Raises OSError if the bucket or the local disk fails, ImportError if the bucket's client is not
    installed."""
    fs, there = file_system(url)
    pieces, whole = list_growing_files(url, growing)
    paths = []
    for name in sorted({*pieces, *(one for one in whole if one.rsplit("/", 1)[-1] == growing)}):
        path, parent = _copy_path(url) / name, name.removesuffix(growing).rstrip("/")
        if name not in pieces or not read_growing(f"{url}/{name}", path):
            download_file(f"{url}/{name}", path)
        written = fs.modified(f"{there}/{name}{PIECES}/{INDEX}" if name in pieces else f"{there}/{name}").timestamp()
        os.utime(path, (written, written))
        mirror_files(f"{url}/{parent}".rstrip("/"), small)
        paths.append(path)
    return paths


def download_file(url: str, path: Path) -> None:
    """Download ``url`` to ``path`` atomically, with its folders. Raises FileNotFoundError if it is missing, OSError."""
    fs, there = file_system(url)
    with replaced_file(path) as partial:
        fs.get_file(there, str(partial))


def display_name(path: Path) -> str:
    """Name of a folder for messages: the bucket URL if it is a local copy of one, else the path."""
    if not path.is_relative_to(_copies_folder()):
        return str(path)
    scheme, *rest = path.relative_to(_copies_folder()).parts
    return f"{scheme}://{'/'.join(rest)}"


def _copies_folder() -> Path:
    return lemur_home() / "copies" / "of"


def _copy_path(url: str) -> Path:
    scheme, _, rest = url.partition("://")
    return _copies_folder() / scheme / rest.strip("/")
