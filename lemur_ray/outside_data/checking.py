"""Whether what lies in the data folder is what was declared: the same check for a fetched file and for a brought one.

Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lemur_ray.outside_data import provenance
from lemur_ray.outside_data.making import content_sum, folder_sum, tree_sum
from lemur_ray.outside_data.source import DataSet, Source

Found = Literal["missing", "same", "unpinned", "differs"]
"""``same``: as pinned, or as it was when it was fetched. ``unpinned``: there, and nobody knows what it should be."""


@dataclass(frozen=True)
class State:
    """``why``: in words, where it is not simply there."""

    found: Found
    why: str = ""


def is_there(source: Source, data: Path) -> bool:
    """Whether something lies in its place, of a folder any file; looks at no content."""
    path = data / source.path
    return any(file.is_file() for file in path.rglob("*")) if source.stored == "unzipped" else path.is_file()


def missing(sources: Iterable[Source], data: Path) -> list[Source]:
    """Those of which nothing is there."""
    return [source for source in sources if not is_there(source, data)]


def brought(one: DataSet, data: Path) -> Iterator[str]:
    """What somebody brought in another layout that its reader knows, in words: the files of a folder together."""
    declared = {data / source.path for source in one.sources}
    folders: dict[Path, list[str]] = {}
    found = {path for layout in one.layouts for ending in ("", ".gz") for path in data.glob(f"{layout}{ending}")}
    for path in sorted(found):
        if path.is_file() and not declared & {path, *path.parents}:
            folders.setdefault(path.parent.relative_to(data), []).append(path.name)
    for folder, names in folders.items():
        yield (folder / names[0]).as_posix() if len(names) == 1 else f"{folder.as_posix()}, {len(names)} files"


def check(source: Source, data: Path) -> State:
    """Reads the whole content. Raises OSError."""
    path = data / source.path
    if not is_there(source, data):
        return State("missing")
    known = provenance.read(path)
    if source.stored == "unzipped":
        return _check_folder(path, known)
    expected = source.sha256 or known.get("sha256", "")
    try:
        found, size = kept_sum(source, path)
    except ValueError as error:
        return State("differs", f"{error}, expected sha256 {expected}" if expected else str(error))
    if not expected:
        return State("unpinned", f"sha256 {found}, {size} bytes; no checksum is known")
    if found == expected:
        return State("same")
    whose = "pinned" if source.sha256 else "as fetched"
    return State("differs", f"sha256 {found} ({size} bytes), expected {expected} ({whose})")


def _check_folder(path: Path, known: Mapping[str, Any]) -> State:
    """An unpacked folder has no checksum of its own: it is held to what was written down when it was unpacked."""
    if not known:
        return State("unpinned", "unpacked, brought by somebody: not checked")
    if not (expected := known.get("folder_sha256", "")):
        return State("unpinned", "unpacked by a version that wrote no checksum of its files down: not checked")
    found, files = folder_sum(path)
    if found == expected:
        return State("same")
    what = f"sha256 {found} over names and contents ({files} files)"
    return State("differs", f"{what}, expected {expected} ({known.get('files')} files, as unpacked)")


def kept_sum(source: Source, path: Path) -> tuple[str, int]:
    """Checksum and size of what is kept, as ``Source`` means them. Raises ValueError, OSError."""
    return tree_sum(path) if source.stored == "tar" else content_sum(path, packed=source.stored == "gzip")
