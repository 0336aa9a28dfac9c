"""Comparison of all cleaned documents with each other and with benchmarks, by tasks on the workers of a build."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lemur_ray.corpus.cleaning.decontaminate import NgramIndex
from lemur_ray.corpus.cleaning.minhash import minhash_name
from lemur_ray.corpus.comparison import scan_steps
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.destinations.step_files import SharedFolder
from lemur_ray.corpus.sources.stage_keys import array_hash, stage_key
from lemur_ray.corpus.steps import stages

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
    if index is not None:
        hits = _benchmark_hits(work, parts, index, handover, parallel)
        drops["benchmark"] = hits >= 0
        counts = np.bincount(hits[hits >= 0], minlength=len(index.names)).tolist()
        overlaps = {name: count for name, count in zip(index.names, counts, strict=True) if count}
    if config.near_duplicates:
        drops["near_duplicate"] = _near_duplicates(work, parts, config.near_duplicates, handover, parallel)
    return drops, overlaps


def _benchmark_hits(
    work: Path, parts: Sequence[str], index: NgramIndex, handover: SharedFolder, parallel: Parallel
) -> np.ndarray:
    name = stage_key("hits", index.digest, list(index.names), array_hash(index.owners))
    index.save(work / "hits" / f"{name}.npz")
    handover.send(f"hits/{name}.npz")
    names = [stage_key("hits", state, name) for state in _states(work, parts)]
    clean = dict(zip(names, parts, strict=True))
    to_do = handover.parts_to_do("hits", clean)
    tasks = [{"name": one, "clean": clean[one], "index": name} for one in to_do]
    parallel("compare with benchmarks", handover.runs(scan_steps.overlap_part), tasks)
    handover.used["hits"].append(name)
    handover.fetch(*(f"hits/{one}{suffix}" for one in clean for suffix in (".json", ".hits")))
    return scan_steps.benchmark_hits(work, names)


def _states(work: Path, parts: Sequence[str]) -> list[Any]:
    """Key of each cleaned part, and with it whether the part could not be read."""
    failed = {one["part"] for one in stages.failed_parts(work, parts)}
    return [[part, "failed"] if number in failed else part for number, part in enumerate(parts)]


def _near_duplicates(
    work: Path, parts: Sequence[str], threshold: float, handover: SharedFolder, parallel: Parallel
) -> np.ndarray:
    names = [stage_key("bands", state, minhash_name()) for state in _states(work, parts)]
    clean = dict(zip(names, parts, strict=True))
    banding = [{"name": name, "clean": clean[name]} for name in handover.parts_to_do("bands", names)]
    parallel("MinHash", handover.runs(scan_steps.band_part), banding)
    handover.fetch(*(f"bands/{name}{suffix}" for name in clean for suffix in (".json", ".bands")))
    sizes = [stages.read_clean(work, part)[2] for part in parts]
    groups = scan_steps.write_groups(work, names, parts, sizes, threshold)
    to_do = handover.parts_to_do("near", groups)
    handover.send(*(f"near/{group}.npz" for group in to_do))
    comparing = [{"name": group, "threshold": threshold} for group in to_do]
    parallel("verify near duplicates", handover.runs(scan_steps.compare_group), comparing)
    handover.fetch(*(f"near/{group}{suffix}" for group in groups for suffix in (".json", ".later")))
    return scan_steps.later_mask(work, groups, sum(map(len, sizes)))
