"""Build steps that drop documents by comparison with all others and with benchmarks, after a part was cleaned.

scan/N.bands    MinHash bands of the documents of part N      scan/index.npz  13-grams of the benchmarks
scan/N.hits     benchmark that each document overlaps          near/G.npz      candidates of group G
near/G.later    which of them repeat an earlier document
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lemur_ray.corpus import stages
from lemur_ray.corpus.cleaning.decontaminate import NgramIndex
from lemur_ray.corpus.cleaning.minhash import BANDS, band_keys, candidate_pairs, components
from lemur_ray.corpus.cleaning.near_duplicates import later_copies, text_sets
from lemur_ray.corpus.rows import write_atomically

INDEX = "scan/index.npz"
_SUFFIXES = (".bands", ".hits")
_GROUP_BYTES = 128e6
"""Bytes of text that one task compares; their n-grams take about as much memory again."""


def scan_part(build: Path, number: int, near: bool) -> None:
    """Compute the bands of a cleaned part (if ``near``) and its overlap with the benchmark index, if there is one."""
    if stages.part_done(build, number, "scan"):
        return
    index = NgramIndex.load(build / INDEX) if (build / INDEX).is_file() else None
    bands, hits = [np.zeros((BANDS, 0), np.uint64)], [np.zeros(0, np.int32)]
    with pq.ParquetFile(build / "clean" / f"{number:05d}.parquet") as table:
        for batch in table.iter_batches(batch_size=stages.BATCH, columns=["text"]):
            texts = batch.column("text").to_pylist()
            bands += [band_keys(texts)] if near else []
            hits += [index.first_owners(texts)] if index else []
    base = build / "scan" / f"{number:05d}"
    write_atomically(base.with_suffix(".bands"), np.concatenate(bands, axis=1).tobytes(), durable=False)
    write_atomically(base.with_suffix(".hits"), np.concatenate(hits).astype("<i4").tobytes(), durable=False)
    stages.commit(base, _SUFFIXES)


def benchmark_hits(build: Path, parts: Sequence[int]) -> np.ndarray:
    """(documents of all parts,) int32: index of the benchmark that a document overlaps, -1 for none."""
    return np.concatenate([np.fromfile(build / "scan" / f"{number:05d}.hits", "<i4") for number in parts])


def write_groups(build: Path, sizes: Sequence[np.ndarray]) -> int:
    """Find the candidates for near duplicates and write them as groups that one task compares; the number of groups.

    sizes: bytes of the documents of each part. One band of all documents is in memory at a time, 32 bytes a document.
    """
    counts = np.array([len(one) for one in sizes])
    ends, pairs = np.cumsum(counts), [np.zeros((0, 2), np.int64)]
    for band in range(BANDS):
        keys = [
            np.fromfile(build / "scan" / f"{number:05d}.bands", np.uint64, count, offset=8 * band * count)
            for number, count in enumerate(counts.tolist())
        ]
        pairs.append(candidate_pairs(np.concatenate(keys), np.arange(ends[-1])))
    all_pairs = np.unique(np.concatenate(pairs), axis=0)
    if not len(all_pairs):
        return 0
    texts, labels = components(all_pairs)
    order = np.argsort(labels, kind="stable")
    texts, labels = texts[order], labels[order]
    part = np.searchsorted(ends, texts, side="right")
    index = texts - (ends - counts)[part]
    size_of_label = np.bincount(labels, weights=np.concatenate(sizes)[texts])
    group_of_label = ((np.cumsum(size_of_label) - size_of_label) // _GROUP_BYTES).astype(np.int64)
    _, group_of_label = np.unique(group_of_label, return_inverse=True)
    groups = group_of_label[labels]
    place = np.empty(int(ends[-1]), np.int64)  # index of a document in the order above
    place[texts] = np.arange(len(texts))
    pairs_placed = place[all_pairs]
    for group in range(int(groups[-1]) + 1):
        begin, end = np.searchsorted(groups, [group, group + 1]).tolist()
        mine = pairs_placed[(pairs_placed[:, 0] >= begin) & (pairs_placed[:, 0] < end)] - begin
        members = np.stack([part[begin:end], index[begin:end], labels[begin:end], texts[begin:end]])
        with open(build / "near" / f"{group:05d}.npz", "wb") as f:
            np.savez(f, members=members, pairs=mine)
    return int(groups[-1]) + 1


def compare_group(build: Path, number: int, threshold: float) -> None:
    """Verify the candidates of a group by the similarity of their texts; writes which of them are later copies."""
    if stages.part_done(build, number, "near"):
        return
    with np.load(build / "near" / f"{number:05d}.npz") as saved:
        (part, index, label, _), pairs = saved["members"], saved["pairs"]
    sets: list[np.ndarray] = [np.zeros(0, np.uint32)] * len(part)
    for one in np.unique(part).tolist():
        at = np.flatnonzero(part == one)
        at = at[np.argsort(index[at])]
        for some, texts in _texts(build, one, index[at]):
            for i, text_set in zip(at[some].tolist(), text_sets(texts), strict=True):
                sets[i] = text_set
    later = np.zeros(len(part), bool)
    begins = np.flatnonzero(np.diff(label, prepend=-1))
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(label)], strict=True):
        mine = pairs[(pairs[:, 0] >= begin) & (pairs[:, 0] < end)] - begin if end - begin > 1000 else None
        later[begin:end] = later_copies(sets[begin:end], threshold, mine)
    base = build / "near" / f"{number:05d}"
    write_atomically(base.with_suffix(".later"), later.tobytes(), durable=False)
    stages.commit(base, (".later",))


def _texts(build: Path, part: int, wanted: np.ndarray) -> Iterator[tuple[slice, list[str]]]:
    """Yield (slice of ``wanted``, the texts at these ascending indices of a part), a row group of parquet at a time."""
    first = 0
    with pq.ParquetFile(build / "clean" / f"{part:05d}.parquet") as table:
        for group in range(table.num_row_groups):
            rows = table.metadata.row_group(group).num_rows
            begin, end = np.searchsorted(wanted, [first, first + rows]).tolist()
            if end > begin:
                column = table.read_row_group(group, columns=["text"]).column("text")
                yield slice(begin, end), column.take(pa.array(wanted[begin:end] - first)).to_pylist()
            first += rows


def later_mask(build: Path, num_groups: int, num_documents: int) -> np.ndarray:
    """(documents,) bool: near duplicates of an earlier document, from the output of all groups."""
    later = np.zeros(num_documents, bool)
    for group in range(num_groups):
        with np.load(build / "near" / f"{group:05d}.npz") as saved:
            later[saved["members"][3]] = np.fromfile(build / "near" / f"{group:05d}.later", bool)
    return later


def _needs_of_scan(build: Path, number: int, **_: Any) -> Iterator[str]:
    yield f"clean/{number:05d}.parquet"
    yield INDEX


def _needs_of_group(build: Path, number: int, **_: Any) -> Iterator[str]:
    yield f"near/{number:05d}.npz"
    with np.load(build / "near" / f"{number:05d}.npz") as saved:
        parts = np.unique(saved["members"][0]).tolist()
    yield from (f"clean/{part:05d}.parquet" for part in parts)


stages.NEEDS |= {scan_part: _needs_of_scan, compare_group: _needs_of_group}
stages.GIVES |= {
    scan_part: stages.outputs_of_part("scan", _SUFFIXES),
    compare_group: stages.outputs_of_part("near", (".later",)),
}
