"""Verifies files of the data folder against their declaration, whether fetched or brought by the user.

Changes nothing."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lemur_ray.outside_data import provenance
from lemur_ray.outside_data.making import content_sum, folder_sum, tree_sum
from lemur_ray.outside_data.source import DataSet, Source

Status = Literal["missing", "same", "unpinned", "differs"]
"""``same``: equal to the pinned checksum, or to that of the fetch. ``unpinned``: present, without a known checksum."""


@dataclass(frozen=True)
class State:
    """Result of verifying one source; ``why``: the reason, for people; may be empty."""

    status: Status
    why: str = ""


def is_there(source: Source, data: Path) -> bool:
    """Whether the source's file exists, or any file of its folder; reads no content."""
    path = data / source.path
    return any(file.is_file() for file in path.rglob("*")) if source.stored == "unzipped" else path.is_file()


def missing(sources: Iterable[Source], data: Path) -> list[Source]:
    """Those of ``sources`` that do not exist in the data folder ``data``."""
    return [source for source in sources if not is_there(source, data)]


def brought(one: DataSet, data: Path) -> Iterator[str]:
    """Yield a description of the files in the data folder that the user supplied in another layout than the set's
    sources, if its reader accepts it (``DataSet.layouts``); one for all files of a folder."""
    declared = {data / source.path for source in one.sources}
    folders: dict[Path, list[str]] = {}
    paths = {path for layout in one.layouts for ending in ("", ".gz") for path in data.glob(f"{layout}{ending}")}
    for path in sorted(paths):
        if path.is_file() and not declared & {path, *path.parents}:
            folders.setdefault(path.parent.relative_to(data), []).append(path.name)
    for folder, names in folders.items():
        yield (folder / names[0]).as_posix() if len(names) == 1 else f"{folder.as_posix()}, {len(names)} files"


def check(source: Source, data: Path) -> State:
    """Compare one source in the data folder with its checksum, or with that of its first fetch; reads its whole
    content. A missing or damaged file is a status, not an error. Raises OSError if a file exists and cannot be read."""
    path = data / source.path
    if not is_there(source, data):
        return State("missing")
    known = provenance.read(path)
    if source.stored == "unzipped":
        return _check_folder(path, known)
    expected = source.sha256 or known.get("sha256", "")
    try:
        is_tar = source.stored == "tar"
        digest, size = tree_sum(path) if is_tar else content_sum(path, packed=source.stored == "gzip")
    except ValueError as error:
        return State("differs", f"{error}, expected sha256 {expected}" if expected else str(error))
    if not expected:
        return State("unpinned", f"sha256 {digest}, {size} bytes; no checksum is known")
    if digest == expected:
        return State("same")
    whose = "pinned" if source.sha256 else "as fetched"
    return State("differs", f"sha256 {digest} ({size} bytes), expected {expected} ({whose})")


def _check_folder(path: Path, known: Mapping[str, Any]) -> State:
    """Verify an unpacked folder against the checksum that was recorded when it was unpacked."""
    if not known:
        return State("unpinned", "unpacked, brought by somebody: not checked")
    if not (expected := known.get("folder_sha256", "")):
        return State("unpinned", "unpacked by a version that wrote no checksum of its files down: not checked")
    digest, files = folder_sum(path)
    if digest == expected:
        return State("same")
    what = f"sha256 {digest} over names and contents ({files} files)"
    return State("differs", f"{what}, expected {expected} ({known.get('files')} files, as unpacked)")
