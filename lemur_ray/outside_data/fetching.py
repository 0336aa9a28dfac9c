"""One declared source, from its address to its place: space, terms, transfer, checksum, form, provenance.

Nothing lies in the place of a file before all of it was checked. Knows no benchmark.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lemur_ray.host.file_lock import FileHeld, hold
from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.outside_data import provenance
from lemur_ray.outside_data.checking import check
from lemur_ray.outside_data.making import content_sum, folder_sum, make, tree_sum
from lemur_ray.outside_data.rows import take_rows
from lemur_ray.outside_data.source import DataSet, FetchError, Source, readable
from lemur_ray.outside_data.transfer import Remote, Seen, forget, transfer

UNFINISHED = ".fetching"
"""Folder of the data folder where what is not whole yet lies."""
SPARE = 64 << 20
"""Bytes that stay free."""


@dataclass(frozen=True)
class Asked:
    """``accepted``: families whose terms the user accepts. ``say``: told what happens, a line at a time."""

    data: Path
    accepted: Collection[str] = ()
    say: Callable[[str], None] = print


def fetch(sets: Sequence[DataSet], asked: Asked, *, rows: int = 0) -> list[str]:
    """Everything of these sets that is not there, of streamed ones so many rows; what could not be had, a line each.

    Raises FetchError before anything is fetched: terms that are not accepted, a set that was withdrawn, no space.
    """
    _refuse(sets, asked)
    wanted = {source.path: source for one in sets for source in one.sources}
    failed: list[str] = []
    missing = [source for source in wanted.values() if _is_wanted(source, asked, failed)]
    _check_space(missing, asked.data)
    tasks: list[tuple[str, Callable[[], object]]] = [
        (source.path, partial(_fetch, source, asked)) for source in missing
    ]
    for stream in (stream for one in sets for stream in one.streams):
        tasks.append((stream.path, partial(take_rows, stream, asked.data, rows, asked.say)))
    for path, task in tasks:
        try:
            task()
        except (FetchError, OSError) as error:
            failed.append(f"{path}: {_said(error)}")
            asked.say(failed[-1])
    return failed


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and is_full_disk(error):
        return f"{error.strerror}: make space, or say another folder with --data; what came so far is kept"
    return str(error)


def _refuse(sets: Sequence[DataSet], asked: Asked) -> None:
    for one in sets:
        if one.withdrawn:
            raise FetchError(f"{one.name}: {one.withdrawn}")
    terms: dict[str, str] = {}
    for one in sets:
        for part in one.parts:
            if part.terms and one.family not in asked.accepted and not (asked.data / part.path).exists():
                terms.setdefault(one.family, part.terms)
    if terms:
        said = "; ".join(f"{family}: {text}" for family, text in terms.items())
        raise FetchError(f"terms to accept first: {said}. Add {' '.join(f'--accept {family}' for family in terms)}")


def _is_wanted(source: Source, asked: Asked, failed: list[str]) -> bool:
    """Whether nothing is there. What is there and is not what it should be stays, and is among what failed."""
    state = check(source, asked.data)
    if state.found == "missing":
        return True
    if state.found == "differs":
        said = "remove it and fetch again, or bring the right one"
        failed.append(f"{source.path}: spoiled, or another version: {state.why}: {said}")
        asked.say(failed[-1])
        return False
    asked.say(f"{source.path}: there already{f', but {state.why}' if state.why else ''}")
    return False


def _check_space(sources: Sequence[Source], data: Path) -> None:
    """Before the first byte, for all of them together."""
    needed = sum(_needed(source, data) for source in sources)
    _refuse_too_much(needed, data)


def _refuse_too_much(needed: int, data: Path) -> None:
    folder = next(folder for folder in (data, *data.absolute().parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    if needed and needed + SPARE > free:
        raise FetchError(
            f"{data}: {readable(free)} free, {readable(needed + SPARE)} needed: make space, or say another folder with "
            "--data"
        )


def _needed(source: Source, data: Path, size: int = 0) -> int:
    """Bytes yet to come, and of what is made of them. ``size``: as the server says it, where it does."""
    part, whole = _part(source, data), size or source.size
    there = part.stat().st_size if part.exists() else 0
    return max(0, whole - there) + (0 if source.stored == "plain" else whole)


class _Fitting:
    """A remote file whose size is known when it is looked at: one that has no room is refused before its first byte,
    whatever was declared of it."""

    def __init__(self, remote: Remote, source: Source, data: Path) -> None:
        self._remote, self._source, self._data = remote, source, data
        self.append = remote.append

    def look(self) -> Seen:
        """See ``Remote``."""
        seen = self._remote.look()
        _refuse_too_much(_needed(self._source, self._data, seen.size or 0), self._data)
        return seen


def _fetch(source: Source, asked: Asked) -> None:
    if source.by_hand:
        raise FetchError(f"no program can fetch it; by hand: {source.by_hand}")
    part = _part(source, asked.data)
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        with hold(part.with_name(f"{part.name}.lock")):
            asked.say(f"{source.path}: {source.url} ({readable(source.size)}, {source.licence})")
            remote = _Fitting(_remote(source), source, asked.data)
            seen = transfer(remote, part, lambda line: asked.say(f"{source.path}: {line}"))
            _put(source, part, seen, asked)
    except FileHeld as error:
        raise FetchError(f"another process (number {error.holder}) is fetching it") from error


def _put(source: Source, part: Path, seen: Seen, asked: Asked) -> None:
    place, made = asked.data / source.path, part.with_name(f"{part.name}.made")
    if source.stored != "tar":  # of a folder's archive the members are what was pinned, not the archive
        found, size = content_sum(part, packed=source.stored == "gzip")
        _refuse_another(source, found, size, part, place)
    _remove(made)
    try:
        make(source, part, made)
        if source.stored == "tar":
            found, size = tree_sum(made)
            _refuse_another(source, found, size, part, place)
        place.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "url": source.url, "revision": seen.revision, "sha256": found, "size": size, "licence": source.licence,
            "stored": source.stored, "accepted": source.terms, "pinned": bool(source.sha256),
        }  # fmt: skip
        if source.stored == "unzipped":
            record |= dict(zip(("folder_sha256", "files"), folder_sum(made), strict=True))
        provenance.write(place, record)
        _keep(made)
        if place.is_dir():  # without a file in it, else it would have been there
            shutil.rmtree(place)
        os.replace(made, place)
    finally:
        _remove(made)
    forget(part)
    asked.say(f"{source.path}: fetched, {_how_sure(source, found)}")


def _refuse_another(source: Source, found: str, size: int, part: Path, place: Path) -> None:
    expected = source.sha256 or provenance.read(place).get("sha256", "")
    if not expected or found == expected:
        return
    forget(part)
    whose = "was pinned" if source.sha256 else "at the first fetch"
    doubt = "; only one place publishes that checksum, so it may be wrong itself" if source.seen_in == 1 else ""
    raise FetchError(
        f"{source.url}: upstream serves another file than {whose}: sha256 {found}, {size} bytes, expected "
        f"{expected}{doubt}. Nothing was kept; fetch again in case the way spoiled it, else bring "
        "a copy of the other one"
    )


def _how_sure(source: Source, found: str) -> str:
    if not source.sha256:
        return f"sha256 {found} written down (nobody has published one: later fetches are held to it)"
    return "checksum as pinned" + (" (which one other place publishes)" if source.seen_in == 1 else "")


def _remote(source: Source) -> Remote:
    found = source.address
    if found.kind == "hub":
        from lemur_ray.outside_data.hub import HubFile  # a second to import, for such sources only

        return HubFile(found)
    from lemur_ray.outside_data.web import WebFile  # likewise

    return WebFile(found)


def _part(source: Source, data: Path) -> Path:
    """Where what came of it so far lies: by address and place, so that another version begins anew."""
    named = hashlib.sha256(f"{source.url}\n{source.path}".encode()).hexdigest()[:16]
    return data / UNFINISHED / f"{named}.part"


def _keep(path: Path) -> None:
    """On the disk, before its name says that it is whole."""
    if path.is_file():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
