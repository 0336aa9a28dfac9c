"""The listing of a build: files of every source, grouped into parts, each the work of one task.

It is stored when a build begins and read back when the build is resumed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemur_ray.corpus.rows import write_atomically
from lemur_ray.corpus.sources.file_parts import split_file
from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.corpus.sources.folders import Source

LISTING = "listing.json"
_BYTES_PER_TOKEN = 8.0
"""Bytes of files that are read per token wanted: about 4.5 of text, and what filters and deduplication drop."""


@dataclass(frozen=True)
class Listing:
    """Sources of a build and the numbers of their parts, as listed when the build began."""

    sources: tuple[dict[str, Any], ...]
    """Per source: name, kind, looked_for, required, files (count), bytes, state (``files_hash``), parts (numbers) and
    spec (the user's specification, ``SourceSpec.to_json``)."""

    @property
    def num_parts(self) -> int:
        return sum(len(source["parts"]) for source in self.sources)


def write_listing(work: Path, sources: Sequence[Source], part_bytes: float, seed: int = 0) -> Listing:
    """Group the files of each source, large ones split, into parts of about ``part_bytes`` bytes.

    Of a source of which a number of tokens is wanted, a sample of the files by ``seed`` is taken that is large enough.
    Stores and returns the listing.
    """
    entries: list[dict[str, Any]] = []
    number = 0
    for source in sources:
        spec = source.spec.to_json() if source.spec else {}
        settings = {"filters": spec["filters"]} if "filters" in spec else {}
        numbers, batch, size = [], [], 0
        refs = [part for ref in sampled(source.files, source, seed) for part in split_file(ref, part_bytes)]
        refs = sampled(refs, source, seed)
        for i, ref in enumerate(refs):
            batch.append(ref.to_json())
            size += ref.size
            if size >= part_bytes or i == len(refs) - 1:
                part = {"source": source.name, "kind": source.kind, "files": batch, **settings}
                write_atomically(work / "parts" / f"{number:05d}.json", json.dumps(part).encode(), durable=False)
                numbers.append(number)
                number, batch, size = number + 1, [], 0
        entries.append(
            {
                "name": source.name,
                "kind": source.kind,
                "looked_for": source.looked_for,
                "required": source.required,
                "files": len(source.files),
                "bytes": sum(ref.size for ref in refs),
                "state": files_hash(source),
                "parts": numbers,
                "spec": spec,
            }
        )
    write_atomically(work / LISTING, json.dumps(entries).encode())
    return Listing(tuple(entries))


def sampled(refs: Sequence[FileRef], source: Source, seed: int) -> list[FileRef]:
    """The files, in their order, of a seeded sample that has the tokens wanted of a source; all if none are wanted.

    Compressed files hold several times more text than they have bytes, which leaves room for the filters.
    """
    wanted = source.spec.tokens * _BYTES_PER_TOKEN if source.spec else 0
    if not wanted:
        return list(refs)
    ranked = sorted(
        range(len(refs)),
        key=lambda i: hashlib.sha256(f"{seed}/{source.name}/{refs[i].name}/{refs[i].part}".encode()).digest(),
    )
    before = dict(zip(ranked, itertools.accumulate((refs[i].size for i in ranked), initial=0), strict=False))
    return [ref for i, ref in enumerate(refs) if before[i] < wanted]


def read_listing(work: Path, sources: Sequence[Source]) -> Listing | None:
    """Listing that an unfinished build stored in ``work``; None if there is none or files of the sources changed."""
    path = work / LISTING
    if not path.is_file():
        return None
    entries = tuple(json.loads(path.read_bytes()))
    same = [(entry["name"], entry.get("state")) for entry in entries] == [(s.name, files_hash(s)) for s in sources]
    return Listing(entries) if same else None


def files_hash(source: Source) -> str:
    """16 hex digits of a hash over paths, sizes and modification times (or object versions) of a source's files."""
    files = [[*ref.to_json(), os.stat(ref.path).st_mtime_ns if os.path.exists(ref.path) else 0] for ref in source.files]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]
