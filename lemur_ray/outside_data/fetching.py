"""Fetches declared sources: checks space and terms, transfers, verifies the checksum, converts, records provenance.

A file appears at its final path only after it was verified completely. Knows no benchmark."""

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
from lemur_ray.outside_data.transfer import Remote, RemoteInfo, forget, transfer

UNFINISHED = ".fetching"
"""Folder in the data folder that holds incomplete downloads."""
SPARE = 64 << 20
"""Bytes of disk space that a fetch leaves free."""


@dataclass(frozen=True)
class FetchOptions:
    """Options of a fetch. ``accepted``: families whose terms the user accepts. ``say``: receives a line per event."""

    data: Path
    accepted: Collection[str] = ()
    say: Callable[[str], None] = print


def fetch(sets: Sequence[DataSet], options: FetchOptions, *, rows: int = 0) -> list[str]:
    """Download and verify the missing files of ``sets``, then rows of each of their streams until ``rows`` of it are
    stored or it ends. Returns a line for each failure, empty on success. Raises FetchError before anything is
    downloaded if terms are not accepted, a set is withdrawn, or disk space is short."""
    _refuse(sets, options)
    wanted = {source.path: source for one in sets for source in one.sources}
    failed: list[str] = []
    missing = [source for source in wanted.values() if _is_wanted(source, options, failed)]
    _refuse_too_much(sum(_needed(source, options.data) for source in missing), options.data)
    tasks: list[tuple[str, Callable[[], object]]] = [
        (source.path, partial(_fetch, source, options)) for source in missing
    ]
    for stream in (stream for one in sets for stream in one.streams):
        tasks.append((stream.path, partial(take_rows, stream, options.data, rows, options.say)))
    for path, task in tasks:
        try:
            task()
        except (FetchError, OSError) as error:
            failed.append(f"{path}: {_reason(error)}")
            options.say(failed[-1])
    return failed


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and is_full_disk(error):
        return f"{error.strerror}: make space, or say another folder with --data; what came so far is kept"
    return str(error)


def _refuse(sets: Sequence[DataSet], options: FetchOptions) -> None:
    for one in sets:
        if one.withdrawn:
            raise FetchError(f"{one.name}: {one.withdrawn}")
    terms: dict[str, str] = {}
    for one in sets:
        for part in one.parts:
            if part.terms and one.family not in options.accepted and not (options.data / part.path).exists():
                terms.setdefault(one.family, part.terms)
    if terms:
        listed = "; ".join(f"{family}: {text}" for family, text in terms.items())
        raise FetchError(f"terms to accept first: {listed}. Add {' '.join(f'--accept {family}' for family in terms)}")


def _is_wanted(source: Source, options: FetchOptions, failed: list[str]) -> bool:
    """Whether the source is absent. A file that differs from its declaration is kept, and added to ``failed``."""
    state = check(source, options.data)
    if state.status == "missing":
        return True
    if state.status == "differs":
        todo = "remove it and fetch again, or bring the right one"
        failed.append(f"{source.path}: spoiled, or another version: {state.why}: {todo}")
        options.say(failed[-1])
        return False
    options.say(f"{source.path}: there already{f', but {state.why}' if state.why else ''}")
    return False


def _refuse_too_much(needed: int, data: Path) -> None:
    folder = next(folder for folder in (data, *data.absolute().parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    if needed and needed + SPARE > free:
        raise FetchError(
            f"{data}: {readable(free)} free, {readable(needed + SPARE)} needed: make space, or say another folder with "
            "--data"
        )


def _needed(source: Source, data: Path, size: int = 0) -> int:
    """Bytes of disk space that a source still needs, its converted copy too. ``size``: as the server reports, or 0."""
    part, whole = _part(source, data), size or source.size
    there = part.stat().st_size if part.exists() else 0
    return max(0, whole - there) + (0 if source.stored == "plain" else whole)


def _fetch(source: Source, options: FetchOptions) -> None:
    if source.by_hand:
        raise FetchError(f"no program can fetch it; by hand: {source.by_hand}")
    part = _part(source, options.data)
    part.parent.mkdir(parents=True, exist_ok=True)

    def check_size(seen: RemoteInfo) -> None:
        _refuse_too_much(_needed(source, options.data, seen.size or 0), options.data)

    try:
        with hold(part.with_name(f"{part.name}.lock")):
            options.say(f"{source.path}: {source.url} ({readable(source.size)}, {source.licence})")
            seen = transfer(_remote(source), part, lambda line: options.say(f"{source.path}: {line}"), check_size)
            _put(source, part, seen, options)
    except FileHeld as error:
        raise FetchError(f"another process (number {error.holder}) is fetching it") from error


def _put(source: Source, part: Path, seen: RemoteInfo, options: FetchOptions) -> None:
    place, made = options.data / source.path, part.with_name(f"{part.name}.made")
    if source.stored != "tar":  # the checksum of a folder covers the members of its archive, not the archive
        digest, size = content_sum(part, packed=source.stored == "gzip")
        _refuse_another(source, digest, size, part, place)
    _remove(made)
    is_moved = False
    try:
        make(source, part, made)
        is_moved = not part.exists()
        if source.stored == "tar":
            digest, size = tree_sum(made)
            _refuse_another(source, digest, size, part, place)
        place.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "url": source.url, "revision": seen.revision, "sha256": digest, "size": size, "licence": source.licence,
            "stored": source.stored, "accepted": source.terms, "pinned": bool(source.sha256),
        }  # fmt: skip
        if source.stored == "unzipped":
            record |= dict(zip(("folder_sha256", "files"), folder_sum(made), strict=True))
        provenance.write(place, record)
        if made.is_file():
            with made.open("rb") as file:  # to disk before it gets its final name
                os.fsync(file.fileno())
        if place.is_dir():  # without a file in it, else it would have been there
            shutil.rmtree(place)
        os.replace(made, place)
    finally:
        if is_moved and made.exists():  # an error: the download itself stays
            os.replace(made, part)
        _remove(made)
    forget(part)
    options.say(f"{source.path}: fetched, {_how_sure(source, digest)}")


def _refuse_another(source: Source, digest: str, size: int, part: Path, place: Path) -> None:
    expected = source.sha256 or provenance.read(place).get("sha256", "")
    if not expected or digest == expected:
        return
    forget(part)
    whose = "was pinned" if source.sha256 else "at the first fetch"
    doubt = "; only one place publishes that checksum, so it may be wrong itself" if source.seen_in == 1 else ""
    raise FetchError(
        f"{source.url}: upstream serves another file than {whose}: sha256 {digest}, {size} bytes, expected "
        f"{expected}{doubt}. Nothing was kept; fetch again in case the way spoiled it, else bring "
        "a copy of the other one"
    )


def _how_sure(source: Source, digest: str) -> str:
    if not source.sha256:
        return f"sha256 {digest} written down (nobody has published one: later fetches are held to it)"
    return "checksum as pinned" + (" (which one other place publishes)" if source.seen_in == 1 else "")


def _remote(source: Source) -> Remote:
    address = source.address
    if address.kind == "hub":
        from lemur_ray.outside_data.hub import HubFile  # a second to import, for such sources only

        return HubFile(address)
    from lemur_ray.outside_data.web import WebFile  # likewise

    return WebFile(address)


def _part(source: Source, data: Path) -> Path:
    """Path of the incomplete download; it depends on url and path, so another version starts afresh."""
    named = hashlib.sha256(f"{source.url}\n{source.path}".encode()).hexdigest()[:16]
    return data / UNFINISHED / f"{named}.part"


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
