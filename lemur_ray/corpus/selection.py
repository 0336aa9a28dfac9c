"""Selection of documents for training: drop duplicates and too small sources, hold some documents out for validation.

Runs in the driver between the parallel steps, on ids, sizes and counts of documents, without their texts."""

import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.documents import ID_BYTES, first_occurrences, shuffled_order
from lemur_ray.corpus.rows import write_atomically
from lemur_ray.corpus.sources.listing import Listing
from lemur_ray.corpus.sources.stage_keys import array_hash
from lemur_ray.corpus.steps import stages

_BYTES_PER_TOKEN = 3.0
"""Rough estimate, used only to size the held-out sets before tokenisation."""
_HELDOUT_OF_KIND, _HELDOUT_OF_SOURCE = 0.05, 0.01
"""Maximum share of the bytes of a kind, or of a source, that is held out."""
_SMALLEST_SOURCE_ROWS = 8
"""An optional source with less text than this many rows is dropped: its rows would be mostly padding."""


@dataclass
class CleanDocuments:
    """All cleaned documents in corpus order."""

    ids: bytes | bytearray
    """16 bytes each, concatenated."""
    sizes: np.ndarray
    """(documents,) int64: bytes of UTF-8."""
    part: np.ndarray
    """(documents,) int32: number of the part that holds the document."""
    source: np.ndarray
    """(documents,) int32: index into the listing's sources."""
    keep: np.ndarray
    """(documents,) bool: not dropped as a duplicate or with its source."""
    heldout: np.ndarray
    """(documents,) bool: kept, but excluded from training rows."""
    counts: list[dict[str, Any]]
    """Per source: documents read, dropped (by rule), masked addresses (by kind), and of each part with documents the
    columns named by the source that have no values."""
    dropped_by: dict[str, np.ndarray] = field(default_factory=dict)
    """By rule, mask (documents,) bool of the documents dropped by comparison with others."""

    def of_part(self, number: int) -> slice:
        """Slice of the documents of part ``number``."""
        return slice(*np.searchsorted(self.part, [number, number + 1]).tolist())

    @cached_property
    def row(self) -> np.ndarray:
        """(documents,) int32: index of each document in its part."""
        return np.arange(len(self.part), dtype=np.int32) - self._first_of_part[self.part]

    @cached_property
    def place(self) -> np.ndarray:
        """(documents,) int32: position of each kept document among the kept documents of its part."""
        before = np.cumsum(self.keep, dtype=np.int32) - self.keep
        first = self._first_of_part
        return before - np.append(before, np.int32(self.keep.sum()))[first][self.part]

    @property
    def _first_of_part(self) -> np.ndarray:
        """(parts,) int32: index of the first document of each part."""
        counts = np.bincount(self.part)
        return (np.cumsum(counts) - counts).astype(np.int32)

    def ids_at(self, at: np.ndarray) -> bytes:
        """Ids of the documents with indices ``at``, in that order, 16 bytes each, concatenated."""
        return np.frombuffer(self.ids, np.uint8).reshape(-1, ID_BYTES)[at].tobytes()


def select_documents(
    work: Path, listing: Listing, config: CorpusConfig, drops: Mapping[str, np.ndarray] | None = None
) -> tuple[CleanDocuments, list[str], dict[str, str]]:
    """Read the ids and sizes of all cleaned documents, and select: (documents with their selection, a line per omitted
    optional source, name -> fault of each empty required source). work: build folder. drops: rule -> mask (documents,)
    bool of documents that it drops; equal documents are dropped anyway. listing: sources and their parts."""
    ids, sizes, counts = bytearray(), [np.zeros(0, np.int64)], []
    source_of_part = np.zeros(len(listing.parts), np.int32)
    documents_of_part = np.zeros(len(listing.parts), np.int64)
    for index, entry in enumerate(listing.sources):
        total: dict[str, Any] = {"read": 0, "dropped": Counter(), "masked": Counter(), "empty_columns": []}
        for number in entry["parts"]:
            part_counts, part_ids, part_sizes = stages.read_clean(work, listing.parts[number])
            ids += part_ids
            sizes.append(part_sizes)
            source_of_part[number], documents_of_part[number] = index, len(part_sizes)
            if len(part_sizes):
                total["empty_columns"].append(set(part_counts.get("empty_columns", ())))
            total["read"] += part_counts["read"]
            total["dropped"].update(part_counts["dropped"])
            total["masked"].update(part_counts["masked"])
        counts.append(total)
    part = np.repeat(np.arange(len(listing.parts), dtype=np.int32), documents_of_part)
    none_heldout = np.zeros(len(part), bool)
    clean = CleanDocuments(
        ids, np.concatenate(sizes), part, source_of_part[part], first_occurrences(ids), none_heldout, counts
    )
    del sizes
    rules = {"duplicate": ~clean.keep, **(drops or {})}
    clean.keep[:] = True
    for rule, mask in rules.items():
        clean.dropped_by[rule] = clean.keep & mask
        numbers = np.bincount(clean.source[clean.keep & mask], minlength=len(counts)).tolist()
        for total, number in zip(counts, numbers, strict=True):
            if number:
                total["dropped"][rule] = number
        clean.keep &= ~mask
    missing, empty = _check_sources(listing, clean, config)
    _hold_out(listing, clean, config)
    return clean, missing, empty


def losses(listing: Listing, clean: CleanDocuments) -> list[str]:
    """A line for each source of which some but less than half of the documents are left, and for each column named for
    licences, languages or origins in which no document has a value; [] if there is none."""
    lines = []
    for entry, counts in zip(listing.sources, clean.counts, strict=True):
        name, read, dropped = entry["name"], counts["read"], counts["dropped"]
        if read / 2 < dropped.total() < read:
            rules = ", ".join(f"{rule} {number:,}" for rule, number in dropped.most_common())
            lines.append(f"{name}: more than half is dropped, {dropped.total():,} of {read:,} documents: {rules}")
        for column in sorted(set.intersection(*counts["empty_columns"]) if counts["empty_columns"] else ()):
            named = entry["spec"]["fields"][column]
            lines.append(f"{name}: no document has a value in column {named!r}, which fields names as its {column}")
    return lines


def write_keep(work: Path, clean: CleanDocuments, num_parts: int) -> list[str]:
    """Write each part's mask of selected documents to ``keep/KEY.npy`` in the build folder ``work``; returns the keys.
    clean: the documents with their selection. num_parts: number of parts of the build."""
    names = []
    for number in range(num_parts):
        mask = clean.keep[clean.of_part(number)]
        buffer = io.BytesIO()
        np.save(buffer, mask)
        names.append(array_hash(mask))
        write_atomically(work / "keep" / f"{names[-1]}.npy", buffer.getvalue(), durable=False)
    return names


def _check_sources(listing: Listing, clean: CleanDocuments, config: CorpusConfig) -> tuple[list[str], dict[str, str]]:
    """(a line for each optional source that is omitted, why a required source is empty by its name)."""
    missing, empty = [], {}
    for index, entry in enumerate(listing.sources):
        mine = clean.keep & (clean.source == index)
        size = int(clean.sizes[mine].sum())
        read, dropped = clean.counts[index]["read"], clean.counts[index]["dropped"]
        rules = ", ".join(f"{rule} {n}" for rule, n in sorted(dropped.items())) or "nothing"
        why = f"of {read} in {entry['files']} files (dropped: {rules}); looked for {entry['looked_for']}"
        if entry["required"] and not size:
            empty[entry["name"]] = f"no document is left {why}"
        if not entry["required"] and size < _SMALLEST_SOURCE_ROWS * config.seq_len * _BYTES_PER_TOKEN:
            missing.append(f"{entry['name']}: left out, {int(mine.sum())} documents, {size} bytes, {why}")
            if size:
                dropped["source_too_small"] = int(mine.sum())
            clean.keep[mine] = False
    return missing, empty


def _hold_out(listing: Listing, clean: CleanDocuments, config: CorpusConfig) -> None:
    """Mark a seeded sample as held out: about ``heldout_rows`` rows of each source if a file lists the sources, at most
    1 % of its bytes; else of each kind, at most 5 %."""
    limit = _HELDOUT_OF_SOURCE if config.sources else _HELDOUT_OF_KIND
    groups: dict[Any, list[int]] = {}
    for index, entry in enumerate(listing.sources):
        groups.setdefault(index if config.sources else entry["kind"], []).append(index)
    for members in groups.values():
        at = np.flatnonzero(clean.keep & np.isin(clean.source, members))
        wanted = config.heldout_rows * config.seq_len * _BYTES_PER_TOKEN
        wanted = min(wanted, limit * float(clean.sizes[at].sum()))
        at = at[clean.sizes[at] <= wanted / 2]  # so that no single long file represents a kind
        at = at[shuffled_order(clean.ids_at(at), config.seed, "heldout")]
        total = np.cumsum(clean.sizes[at])
        clean.heldout[at[total <= wanted]] = True
