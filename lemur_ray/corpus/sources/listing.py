"""The listing of a build: files of every source, grouped into parts, each the work of one task.

It is stored when a build begins and read back when the build is resumed."""

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemur_ray.corpus.rows import write_atomically
from lemur_ray.corpus.sources.file_parts import split_file
from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.corpus.sources.file_tags import file_tags
from lemur_ray.corpus.sources.folders import Source
from lemur_ray.corpus.sources.stage_keys import VERSIONS, clean_key

LISTING = "listing.json"
_BYTES_PER_TOKEN = 8.0
"""Bytes of files that are read per token wanted: about 4.5 of text, and what filters and deduplication drop."""


@dataclass(frozen=True)
class Listing:
    """Sources of a build and their parts (keys, and bytes of their files), as listed when the build began."""

    sources: tuple[dict[str, Any], ...]
    """Per source: name, kind, looked_for, required, files (count), bytes, state (``files_hash``), parts (numbers),
    left_out (whether a sample of the files was taken) and spec (the user's specification, ``SourceSpec.to_json``)."""
    parts: tuple[str, ...]
    """Keys of the cleaned parts (``stage_keys``) by number."""
    sizes: tuple[int, ...]
    """Bytes of the files of each part."""


def write_listing(work: Path, sources: Sequence[Source], part_bytes: float, seed: int = 0, name: str = "") -> Listing:
    """Group the files of each source, large ones split, into parts of about ``part_bytes`` bytes; stores and returns
    the listing ``name`` of the build folder ``work``. For a source with a number of tokens wanted, only a sample of the
    files by ``seed`` is listed (``sampled``). Large files are opened to split them."""
    entries: list[dict[str, Any]] = []
    keys: list[str] = []
    sizes: list[int] = []
    chosen, left_out = [], []
    for source in sources:
        files = sampled(source.files, source, seed)
        refs = [part for ref in files for part in split_file(ref, part_bytes)]
        chosen.append(sampled(refs, source, seed))
        left_out.append(len(files) < len(source.files) or len(chosen[-1]) < len(refs))
    tags = file_tags(work, [ref for refs in chosen for ref in refs])
    for source, refs, is_sample in zip(sources, chosen, left_out, strict=True):
        spec, first = source.spec.to_json() if source.spec else {}, len(keys)
        for batch in _batches(refs, part_bytes):
            filters = spec.get("filters", "")
            keys.append(clean_key(batch, [tags[ref.path] for ref in batch], source.kind, filters))
            sizes.append(sum(ref.size for ref in batch))
            part = {"kind": source.kind, "files": [ref.to_json() for ref in batch], "filters": filters}
            write_atomically(work / "parts" / f"{keys[-1]}.json", json.dumps(part).encode(), durable=False)
        entries.append(
            {
                "name": source.name,
                "kind": source.kind,
                "looked_for": source.looked_for,
                "required": source.required,
                "files": len(source.files),
                "bytes": sum(ref.size for ref in refs),
                "state": files_hash(source),
                "parts": list(range(first, len(keys))),
                "left_out": is_sample,
                "spec": spec,
            }
        )
    (work / name).mkdir(exist_ok=True)
    stored = {"versions": VERSIONS, "sources": entries, "parts": keys, "sizes": sizes}
    write_atomically(work / name / LISTING, json.dumps(stored).encode())
    return Listing(tuple(entries), tuple(keys), tuple(sizes))


def _batches(refs: Sequence[FileRef], part_bytes: float) -> Iterator[list[FileRef]]:
    """Yield the files in groups of ``part_bytes`` bytes on average, at most three times that and a file.
    A hash of a file's name decides whether a group ends with it, with a probability of its size in ``part_bytes``: an
    added or removed file changes the group that it lies in, and no other."""
    batch: list[FileRef] = []
    size = 0
    for ref in refs:
        batch.append(ref)
        size += ref.size
        digest = hashlib.sha256(f"{ref.name}{ref.part}".encode("utf-8", "surrogatepass")).digest()
        if int.from_bytes(digest[:8]) < ref.size / part_bytes * 2**64 or size >= 3 * part_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def sampled(refs: Sequence[FileRef], source: Source, seed: int) -> list[FileRef]:
    """The files of ``refs``, in their order, in a seeded sample that is large enough for the tokens wanted of
    ``source``; all of them if it names no number. Compressed files hold several times more text than they have bytes,
    which leaves room for the filters. seed: of the sample."""
    wanted = source.spec.tokens * _BYTES_PER_TOKEN * source.read_factor if source.spec else 0
    if not wanted:
        return list(refs)
    ranked = sorted(
        range(len(refs)),
        key=lambda i: hashlib.sha256(f"{seed}/{source.name}/{refs[i].name}/{refs[i].part}".encode()).digest(),
    )
    before = dict(zip(ranked, itertools.accumulate((refs[i].size for i in ranked), initial=0), strict=False))
    return [ref for i, ref in enumerate(refs) if before[i] < wanted]


def read_listing(work: Path, sources: Sequence[Source], name: str = "") -> Listing | None:
    """Listing ``name`` that an unfinished build stored in ``work``; None if there is none, or if files or the rules of
    a stage have changed since."""
    path = work / name / LISTING
    if not path.is_file():
        return None
    stored = json.loads(path.read_bytes())
    same = [(entry["name"], entry["state"]) for entry in stored["sources"]] == [
        (source.name, files_hash(source)) for source in sources
    ]
    if not same or stored["versions"] != VERSIONS:
        return None
    return Listing(tuple(stored["sources"]), tuple(stored["parts"]), tuple(stored["sizes"]))


def files_hash(source: Source) -> str:
    """16 hex digits of a hash over paths, sizes and modification times (or object versions) of a source's files, and
    the share of them that is read."""
    files: list[Any] = [
        [*ref.to_json(), os.stat(ref.path).st_mtime_ns if os.path.exists(ref.path) else 0] for ref in source.files
    ]
    files += [source.read_factor] if source.read_factor > 1 else []
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]
