"""What one process decides between the parallel steps: duplicates, held-out documents, tokenizer, row sets, manifest.

Knows ids, sizes and counts of documents; their texts only for the tokenizer's sample. Knows nothing of Ray.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lemur_ray.corpus import stages
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.dedup import first_of_each, shuffled
from lemur_ray.corpus.documents import ID_BYTES
from lemur_ray.corpus.manifest import CorpusError, row_folder
from lemur_ray.corpus.packing import WINDOW, windows
from lemur_ray.corpus.rows import commit, write_atomically
from lemur_ray.corpus.sources.folders import Source
from lemur_ray.corpus.tokenise import train_tokenizer
from lemur_ray.text.tokenizer import Tokenizer

_BYTES_PER_TOKEN = 3.0
"""Rough guess, used only to size the held-out sets before anything is tokenised."""
HELDOUT = "heldout-"
"""What the row set of a source's held-out documents is called, before the source's name."""
_HELDOUT_LIMIT = 0.05
_SMALLEST_SOURCE_ROWS = 8
"""An optional source with less text than this many rows is left out: it would be padding more than data."""
_SAMPLED_PARTS = 64
"""Parts of one source that the tokenizer's sample is drawn from at most."""


@dataclass(frozen=True)
class Listing:
    """Sources and their parts, as they were listed when the build began."""

    sources: tuple[dict[str, Any], ...]
    """name, kind, looked_for, required, files, bytes, state (see ``_state``), parts (numbers)."""

    @property
    def num_parts(self) -> int:
        return sum(len(source["parts"]) for source in self.sources)


def write_listing(work: Path, sources: Sequence[Source], part_bytes: float) -> Listing:
    """Cut every source into parts of about ``part_bytes`` bytes of files and write them down."""
    entries: list[dict[str, Any]] = []
    number = 0
    for source in sources:
        numbers, batch, size = [], [], 0
        for i, ref in enumerate(source.files):
            batch.append(ref.to_json())
            size += ref.size
            if size >= part_bytes or i == len(source.files) - 1:
                part = {"source": source.name, "kind": source.kind, "files": batch}
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
                "bytes": sum(ref.size for ref in source.files),
                "state": _state(source),
                "parts": numbers,
            }
        )
    write_atomically(work / "listing.json", json.dumps(entries).encode())
    return Listing(tuple(entries))


def read_listing(work: Path, sources: Sequence[Source]) -> Listing | None:
    """The listing of an earlier, unfinished build of these very files; None where there is none or they changed."""
    path = work / "listing.json"
    if not path.is_file():
        return None
    entries = tuple(json.loads(path.read_bytes()))
    same = [(entry["name"], entry.get("state")) for entry in entries] == [(s.name, _state(s)) for s in sources]
    return Listing(entries) if same else None


def _state(source: Source) -> str:
    """A hash of a source's files: paths, sizes, times of change."""
    files = [[*ref.to_json(), os.stat(ref.path).st_mtime_ns if os.path.exists(ref.path) else 0] for ref in source.files]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]


@dataclass
class Clean:
    """All cleaned documents in corpus order, with what is decided about each of them."""

    ids: bytes
    sizes: np.ndarray
    """(documents,) int64: bytes of UTF-8."""
    part: np.ndarray
    """(documents,) int64."""
    source: np.ndarray
    """(documents,) int64: index into the listing's sources."""
    keep: np.ndarray
    """(documents,) bool."""
    heldout: np.ndarray
    """(documents,) bool: kept, but in no training row."""
    counts: list[dict[str, Any]]
    """Per source: read, dropped by rule, masked by kind."""

    @cached_property
    def place(self) -> np.ndarray:
        """(documents,) int64: index of a kept document among the kept ones of its part."""
        before = np.cumsum(self.keep) - self.keep
        first = np.searchsorted(self.part, self.part)
        return before - before[first]

    def ids_at(self, at: np.ndarray) -> bytes:
        """Ids of some documents, concatenated."""
        return np.frombuffer(self.ids, np.uint8).reshape(-1, ID_BYTES)[at].tobytes()


def gather(work: Path, listing: Listing, config: CorpusConfig) -> tuple[Clean, list[str]]:
    """Drop duplicates and sources that are too small, choose the held-out documents; and lines about what is missing.

    Raises CorpusError where a required source has no document left.
    """
    ids, sizes, part, source, counts = [], [], [], [], []
    for index, entry in enumerate(listing.sources):
        total: dict[str, Any] = {"read": 0, "dropped": Counter(), "masked": Counter()}
        for number in entry["parts"]:
            found, part_ids, part_sizes = stages.read_clean(work, number)
            ids.append(part_ids)
            sizes.append(part_sizes)
            part.append(np.full(len(part_sizes), number))
            source.append(np.full(len(part_sizes), index))
            total["read"] += found["read"]
            total["dropped"].update(found["dropped"])
            total["masked"].update(found["masked"])
        counts.append(total)
    joined = b"".join(ids)
    none = np.zeros(0, np.int64)
    clean = Clean(
        joined,
        np.concatenate([none, *sizes]),
        np.concatenate([none, *part]),
        np.concatenate([none, *source]),
        first_of_each(joined),
        np.zeros(len(joined) // ID_BYTES, bool),
        counts,
    )
    duplicates = np.bincount(clean.source[~clean.keep], minlength=len(counts)).tolist()
    for total, number in zip(counts, duplicates, strict=True):
        if number:
            total["dropped"]["duplicate"] = number
    missing = _check_sources(listing, clean, config)
    _hold_out(listing, clean, config)
    for number in range(listing.num_parts):
        at = slice(*np.searchsorted(clean.part, [number, number + 1]))
        buffer = io.BytesIO()
        np.save(buffer, clean.keep[at])
        write_atomically(work / "keep" / f"{number:05d}.npy", buffer.getvalue(), durable=False)
    return clean, missing


def _check_sources(listing: Listing, clean: Clean, config: CorpusConfig) -> list[str]:
    missing = []
    for index, entry in enumerate(listing.sources):
        mine = clean.keep & (clean.source == index)
        size = int(clean.sizes[mine].sum())
        if entry["required"] and not size:
            dropped = (
                ", ".join(f"{rule} {n}" for rule, n in sorted(clean.counts[index]["dropped"].items())) or "nothing"
            )
            raise CorpusError(
                f"source {entry['name']}: no document is left of {clean.counts[index]['read']} in {entry['files']} "
                f"files (dropped: {dropped}); looked for {entry['looked_for']}"
            )
        if not entry["required"] and size < _SMALLEST_SOURCE_ROWS * config.seq_len * _BYTES_PER_TOKEN:
            missing.append(
                f"{entry['name']}: {int(mine.sum())} documents, {size} bytes: left out; "
                f"looked for {entry['looked_for']}"
            )
            if size:
                clean.counts[index]["dropped"]["source_too_small"] = int(mine.sum())
            clean.keep[mine] = False
    return missing


def _hold_out(listing: Listing, clean: Clean, config: CorpusConfig) -> None:
    """Mark a seeded sample of each kind: about ``heldout_rows`` rows of text, at most 5 % of the kind."""
    for kind in ("code", "text"):
        of_kind = [index for index, entry in enumerate(listing.sources) if entry["kind"] == kind]
        at = np.flatnonzero(clean.keep & np.isin(clean.source, of_kind))
        wanted = config.heldout_rows * config.seq_len * _BYTES_PER_TOKEN
        wanted = min(wanted, _HELDOUT_LIMIT * float(clean.sizes[at].sum()))
        at = at[clean.sizes[at] <= wanted / 2]  # no single long file stands for a kind
        at = at[shuffled(clean.ids_at(at), config.seed, "heldout")]
        total = np.cumsum(clean.sizes[at])
        clean.heldout[at[total <= wanted]] = True


def make_tokenizer(
    work: Path, listing: Listing, clean: Clean, config: CorpusConfig, extra: Sequence[str], given: Tokenizer | None
) -> Tokenizer:
    """The tokenizer of this build: the one given, or trained on a seeded sample mixed as the corpus is asked to be.

    A build that was cut off reads back the one it has.
    """
    path = work / "tokenizer.json"
    if given is not None:
        write_atomically(path, given.to_json().encode())
    elif not path.is_file():
        texts = _sample(work, listing, clean, config)
        tokenizer = train_tokenizer(texts, extra, config.tokenizer_extra_share, config.vocab_size)
        write_atomically(path, tokenizer.to_json().encode())
    return Tokenizer.load(path)


def _sample(work: Path, listing: Listing, clean: Clean, config: CorpusConfig) -> list[str]:
    trained = clean.keep & ~clean.heldout
    size = np.array([clean.sizes[trained & (clean.source == i)].sum() for i in range(len(listing.sources))], float)
    kinds = [entry["kind"] for entry in listing.sources]
    ratio = {"code": config.code_to_text, "text": 1.0}
    of_kind = {kind: sum(s for s, k in zip(size, kinds, strict=True) if k == kind) for kind in set(kinds)}
    total = sum(ratio[kind] for kind in of_kind if of_kind[kind])
    texts: list[str] = []
    for index, entry in enumerate(listing.sources):
        if not size[index]:
            continue
        share = ratio[entry["kind"]] / total * size[index] / of_kind[entry["kind"]]
        rng = np.random.default_rng([config.seed, index])
        parts = rng.permutation(entry["parts"])[:_SAMPLED_PARTS]
        at = np.flatnonzero(trained & np.isin(clean.part, parts))
        at = at[shuffled(clean.ids_at(at), config.seed, "tokenizer")]
        before = np.cumsum(clean.sizes[at]) - clean.sizes[at]
        chosen = np.zeros(len(clean.sizes), bool)
        chosen[at[before < share * config.tokenizer_sample_mb * 1e6]] = True
        for number in sorted(parts.tolist()):
            mine = chosen[slice(*np.searchsorted(clean.part, [number, number + 1]))]
            if mine.any():
                texts += stages.texts_of(work, number, mine)
    return texts


@dataclass(frozen=True)
class RowSet:
    """One row set to be packed."""

    name: str
    kind: str
    documents: int
    text_bytes: int
    windows: tuple[tuple[int, int], ...]
    """Documents [begin, end) of each shard."""


def row_sets(work: Path, listing: Listing, clean: Clean, config: CorpusConfig) -> list[RowSet]:
    """Row sets of every source and of the held-out documents of each; writes which documents belong to each."""
    lengths = np.zeros(len(clean.sizes), np.int64)
    for number in range(listing.num_parts):
        at = np.arange(*np.searchsorted(clean.part, [number, number + 1]))
        lengths[at[clean.keep[at]]] = stages.read_lengths(work, number)
    members = [
        (entry["name"], entry["kind"], clean.keep & ~clean.heldout & (clean.source == index))
        for index, entry in enumerate(listing.sources)
    ]
    members += [
        (f"{HELDOUT}{entry['name']}", entry["kind"], clean.heldout & (clean.source == index))
        for index, entry in enumerate(listing.sources)
    ]
    sets = []
    for name, kind, member in members:
        at = np.flatnonzero(member)
        if not len(at):
            continue
        table = np.stack([clean.part[at], clean.place[at], lengths[at]], axis=1)
        buffer = io.BytesIO()
        np.save(buffer, table)
        write_atomically(work / "sets" / f"{name}.npy", buffer.getvalue(), durable=False)
        pieces = np.cumsum(-(-lengths[at] // config.seq_len))
        ends = [int(np.searchsorted(pieces, end)) + 1 for _, end in windows(int(pieces[-1]), WINDOW)]
        ends = sorted({*(min(end, len(at)) for end in ends), len(at)})
        sets.append(
            RowSet(name, kind, len(at), int(clean.sizes[at].sum()), tuple(zip([0, *ends[:-1]], ends, strict=True)))
        )
    return sets


def manifest(
    folder: Path, work: Path, listing: Listing, clean: Clean, sets: Sequence[RowSet], config: CorpusConfig
) -> dict[str, Any]:
    """Commit every row set and return the corpus' manifest: sizes, fill, counts, the mixture as asked and as built."""
    tokenizer = Tokenizer.load(work / "tokenizer.json")
    write_atomically(folder / "tokenizer.json", (work / "tokenizer.json").read_bytes())
    entries = []
    for row_set in sets:
        shards = [
            json.loads((work / "sets" / f"{row_set.name}-{window:05d}.json").read_bytes())
            for window in range(len(row_set.windows))
        ]
        rows = commit(
            row_folder(folder, row_set.name),
            shards,
            seq_len=config.seq_len,
            vocab_size=tokenizer.vocab_size,
            documents=row_set.documents,
            text_bytes=row_set.text_bytes,
        )
        entries.append(
            {
                "name": row_set.name,
                "kind": row_set.kind,
                "folder": f"rows/{row_set.name}",
                "rows": rows["rows"],
                "tokens": rows["tokens"],
                "documents": row_set.documents,
                "text_bytes": row_set.text_bytes,
                "fill": round(rows["tokens"] / (rows["rows"] * config.seq_len), 6),
            }
        )
    sources = [entry for entry in entries if not entry["name"].startswith(HELDOUT)]
    tokens = {kind: sum(s["tokens"] for s in sources if s["kind"] == kind) for kind in ("code", "text")}
    return {
        "tokenizer": "tokenizer.json",
        "vocab_size": tokenizer.vocab_size,
        "seq_len": config.seq_len,
        "sources": sources,
        "heldout": [
            {**entry, "source": entry["name"].removeprefix(HELDOUT)}
            for entry in entries
            if entry["name"].startswith(HELDOUT)
        ],
        "fill": round(sum(tokens.values()) / (sum(s["rows"] for s in sources) * config.seq_len), 6),
        "counts": {
            entry["name"]: {
                "files": entry["files"],
                "read": total["read"],
                "kept": int((clean.keep & (clean.source == index)).sum()),
                "dropped": dict(sorted(total["dropped"].items())),
                "masked": dict(sorted(total["masked"].items())),
            }
            for index, (entry, total) in enumerate(zip(listing.sources, clean.counts, strict=True))
        },
        "asked": {"code_to_text": config.code_to_text},
        "built": {
            "code_tokens": tokens["code"],
            "text_tokens": tokens["text"],
            "code_to_text": round(tokens["code"] / tokens["text"], 4) if tokens["text"] else None,
        },
    }
