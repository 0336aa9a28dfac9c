"""Comparison of all cleaned documents with each other and with benchmarks: the build steps, and their calls on workers.

bands/KEY.bands  MinHash bands of the documents of a part      hits/NAME.npz  13-grams of the benchmarks
hits/KEY.hits    benchmark that each document overlaps         near/KEY.npz   candidates of a group
near/KEY.later   which of them repeat an earlier document"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lemur_ray.corpus.cleaning.decontaminate import NgramIndex
from lemur_ray.corpus.cleaning.minhash import BANDS, band_keys, candidate_pairs, components, minhash_name
from lemur_ray.corpus.cleaning.near_duplicates import later_copies, text_sets
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.destinations.step_files import SharedFolder
from lemur_ray.corpus.rows import write_atomically
from lemur_ray.corpus.sources.stage_keys import array_hash, stage_key
from lemur_ray.corpus.steps import stages

_GROUP_BYTES = 128e6
"""Bytes of text that one task compares; their n-grams take about as much memory again."""


Parallel = Callable[[str, Callable[..., None], Sequence[dict[str, Any]]], list[Any]]
"""Function of a label, a step and the arguments of each task that runs the tasks."""


def compare_documents(
    work: Path,
    parts: Sequence[str],
    config: CorpusConfig,
    index: NgramIndex | None,
    handover: SharedFolder,
    parallel: Parallel,
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """(rule -> mask (documents,) bool of documents that it drops; benchmark -> number of overlapping documents). work:
    build folder. parts: keys of the cleaned parts. index: benchmarks, if any. A part that could not be read is compared
    as empty, under keys of its own, because a later build cleans it again under the same key. handover: exchanges files
    with workers; parallel: runs steps."""
    drops: dict[str, np.ndarray] = {}
    overlaps: dict[str, int] = {}

    def run(label: str, step: Callable[..., None], output: str, tasks: Mapping[str, Any], sent: str = "") -> None:
        """Run the tasks (key -> arguments) without a complete output STAGE.SUFFIX. sent: suffix of their inputs."""
        stage, suffix = output.split(".")
        to_do = handover.parts_to_do(stage, tasks)
        handover.send(*(f"{stage}/{name}.{sent}" for name in to_do if sent))
        parallel(label, handover.runs(step), [{"name": name, **tasks[name]} for name in to_do])
        handover.fetch(*(f"{stage}/{name}.{end}" for name in tasks for end in ("json", suffix)))

    if index is not None:
        hits = _benchmark_hits(work, parts, index, handover, run)
        drops["benchmark"] = hits >= 0
        counts = np.bincount(hits[hits >= 0], minlength=len(index.names)).tolist()
        overlaps = {name: count for name, count in zip(index.names, counts, strict=True) if count}
    if config.near_duplicates:
        drops["near_duplicate"] = _near_duplicates(work, parts, config.near_duplicates, run)
    return drops, overlaps


def _states(work: Path, parts: Sequence[str]) -> list[Any]:
    """Key of each cleaned part, and with it whether the part could not be read."""
    failed = {one["part"] for one in stages.failed_parts(work, parts)}
    return [[part, "failed"] if number in failed else part for number, part in enumerate(parts)]


def _benchmark_hits(
    work: Path, parts: Sequence[str], index: NgramIndex, handover: SharedFolder, run: Callable[..., None]
) -> np.ndarray:
    """(documents of all parts,) int32: index of the benchmark that each overlaps, -1: none. Raises DamagedOutput."""
    name = stage_key("hits", index.digest, list(index.names), array_hash(index.owners))
    index.save(work / "hits" / f"{name}.npz")
    handover.send(f"hits/{name}.npz")
    names = [stage_key("hits", state, name) for state in _states(work, parts)]
    tasks = {one: {"clean": part, "index": name} for one, part in zip(names, parts, strict=True)}
    run("compare with benchmarks", overlap_part, "hits.hits", tasks)
    handover.used["hits"].append(name)
    return np.concatenate([np.fromfile(stages.intact(work, "hits", one, ".hits"), "<i4") for one in names])


def _near_duplicates(work: Path, parts: Sequence[str], threshold: float, run: Callable[..., None]) -> np.ndarray:
    """(documents of all parts,) bool: near duplicates of an earlier document."""
    names = [stage_key("bands", state, minhash_name()) for state in _states(work, parts)]
    run("MinHash", band_part, "bands.bands", {one: {"clean": part} for one, part in zip(names, parts, strict=True)})
    sizes = [stages.read_clean(work, part)[2] for part in parts]
    groups = write_groups(work, names, parts, sizes, threshold)
    tasks = {group: {"threshold": threshold} for group in groups}
    run("verify near duplicates", compare_group, "near.later", tasks, sent="npz")
    later = np.zeros(sum(map(len, sizes)), bool)
    for group in groups:
        with np.load(work / "near" / f"{group}.npz") as saved:
            later[saved["texts"]] = np.fromfile(stages.intact(work, "near", group, ".later"), bool)
    return later


def band_part(build: Path, name: str, clean: str) -> None:
    """Step: write the MinHash bands of the documents of part ``clean`` to ``bands/NAME.bands`` in the folder ``build``.
    Does nothing if that is complete."""
    if not stages.part_done(build, name, "bands"):
        bands = [np.zeros((BANDS, 0), np.uint64), *map(band_keys, _batches(build, clean))]
        base = build / "bands" / name
        write_atomically(base.with_suffix(".bands"), np.concatenate(bands, axis=1).tobytes(), durable=False)
        stages.commit(base, (".bands",))


def overlap_part(build: Path, name: str, clean: str, index: str) -> None:
    """Step: write to ``hits/NAME.hits`` in the folder ``build`` which benchmark of ``hits/INDEX.npz`` each document of
    part ``clean`` overlaps. Does nothing if that is complete."""
    if not stages.part_done(build, name, "hits"):
        grams = NgramIndex.load(build / "hits" / f"{index}.npz")
        hits = [np.zeros(0, np.int32), *map(grams.first_owners, _batches(build, clean))]
        base = build / "hits" / name
        write_atomically(base.with_suffix(".hits"), np.concatenate(hits).astype("<i4").tobytes(), durable=False)
        stages.commit(base, (".hits",))


def _batches(build: Path, clean: str) -> Iterator[list[str]]:
    return (batch.to_pylist() for batch in stages.text_batches(build, clean))


def write_groups(
    build: Path, bands: Sequence[str], parts: Sequence[str], sizes: Sequence[np.ndarray], threshold: float
) -> list[str]:
    """Find candidates for near duplicates and write them to ``near/`` in groups, one per task; returns the keys of the
    groups, [] without candidates. bands, parts: keys of the bands and of the cleaned parts. sizes: bytes of the
    documents of each part. One band of all documents is in memory at a time, 32 bytes a document. threshold: part of
    the keys. build: build folder."""
    counts = np.array([len(one) for one in sizes])
    files = [stages.intact(build, "bands", name, ".bands") for name in bands]
    ends, pairs = np.cumsum(counts), [np.zeros((0, 2), np.int64)]
    for band in range(BANDS):
        keys = [
            np.fromfile(file, np.uint64, count, offset=8 * band * count)
            for file, count in zip(files, counts.tolist(), strict=True)
        ]
        pairs.append(candidate_pairs(np.concatenate(keys), np.arange(ends[-1])))
    all_pairs = np.unique(np.concatenate(pairs), axis=0)
    if not len(all_pairs):
        return []
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
    names = []
    for group in range(int(groups[-1]) + 1):
        begin, end = np.searchsorted(groups, [group, group + 1]).tolist()
        mine = pairs_placed[(pairs_placed[:, 0] >= begin) & (pairs_placed[:, 0] < end)] - begin
        numbers, local = np.unique(part[begin:end], return_inverse=True)
        keys = [parts[number] for number in numbers.tolist()]
        members = np.stack([local, index[begin:end], labels[begin:end] - labels[begin]])
        names.append(stage_key("near", threshold, keys, array_hash(members, mine)))
        saved = io.BytesIO()
        np.savez(saved, members=members, pairs=mine, parts=np.array(keys), texts=texts[begin:end])
        write_atomically(build / "near" / f"{names[-1]}.npz", saved.getvalue(), durable=False)
    return names


def compare_group(build: Path, name: str, threshold: float) -> None:
    """Step: compare the texts listed in ``near/NAME.npz``, and write to ``near/NAME.later`` which of them are copies of
    an earlier one. threshold: Jaccard similarity from which a text is a copy. build: build folder."""
    if stages.part_done(build, name, "near"):
        return
    with np.load(build / "near" / f"{name}.npz") as saved:
        (part, index, label), pairs, parts = saved["members"], saved["pairs"], saved["parts"].tolist()
    sets: list[np.ndarray] = [np.zeros(0, np.uint32)] * len(part)
    for one, clean in enumerate(parts):
        at = np.flatnonzero(part == one)
        at = at[np.argsort(index[at])]
        for some, texts in _texts(build, clean, index[at]):
            for i, text_set in zip(at[some].tolist(), text_sets(texts), strict=True):
                sets[i] = text_set
    later = np.zeros(len(part), bool)
    begins = np.flatnonzero(np.diff(label, prepend=-1))
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(label)], strict=True):
        mine = pairs[(pairs[:, 0] >= begin) & (pairs[:, 0] < end)] - begin if end - begin > 1000 else None
        later[begin:end] = later_copies(sets[begin:end], threshold, mine)
    base = build / "near" / name
    write_atomically(base.with_suffix(".later"), later.tobytes(), durable=False)
    stages.commit(base, (".later",))


def _texts(build: Path, part: str, wanted: np.ndarray) -> Iterator[tuple[slice, list[str]]]:
    """Yield (slice of ``wanted``, the texts at these ascending indices of a part), a row group of parquet at a time."""
    first = 0
    with pq.ParquetFile(stages.intact(build, "clean", part, ".parquet")) as table:
        for group in range(table.num_row_groups):
            rows = table.metadata.row_group(group).num_rows
            begin, end = np.searchsorted(wanted, [first, first + rows]).tolist()
            if end > begin:
                column = table.read_row_group(group, columns=["text"]).column("text")
                yield slice(begin, end), column.take(pa.array(wanted[begin:end] - first)).to_pylist()
            first += rows


def _needs_of_group(build: Path, name: str, **_: Any) -> Iterator[str]:
    yield f"near/{name}.npz"
    with np.load(build / "near" / f"{name}.npz") as saved:
        parts = saved["parts"].tolist()
    yield from (f"clean/{part}{suffix}" for part in parts for suffix in (".json", ".parquet"))


stages.NEEDS |= {
    band_part: lambda build, name, clean: iter([f"clean/{clean}.json", f"clean/{clean}.parquet"]),
    overlap_part: lambda build, name, clean, index: iter(
        [f"clean/{clean}.json", f"clean/{clean}.parquet", f"hits/{index}.npz"]
    ),
    compare_group: _needs_of_group,
}
stages.GIVES |= {
    band_part: stages.outputs_of_part("bands", (".bands",)),
    overlap_part: stages.outputs_of_part("hits", (".hits",)),
    compare_group: stages.outputs_of_part("near", (".later",)),
}
