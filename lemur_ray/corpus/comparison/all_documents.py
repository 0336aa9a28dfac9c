"""Comparison of all cleaned documents with each other and with benchmarks, by tasks on the workers of a build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lemur_ray.corpus import stages
from lemur_ray.corpus.cleaning.decontaminate import NgramIndex
from lemur_ray.corpus.comparison import scan_steps
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.step_files import SharedFolder

Parallel = Callable[[str, Callable[..., None], Sequence[dict[str, Any]]], None]
"""Function of a label, a step and the arguments of each task that runs the tasks."""


def compare_documents(
    work: Path,
    num_parts: int,
    config: CorpusConfig,
    index: NgramIndex | None,
    handover: SharedFolder,
    parallel: Parallel,
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """(by rule, mask (documents,) bool of all cleaned documents that it drops; overlapping documents by benchmark)."""
    near, parts = config.near_duplicates > 0, range(num_parts)
    if not near and index is None:
        return {}, {}
    if index is not None:
        index.save(work / scan_steps.INDEX)
        handover.send(scan_steps.INDEX)
    scanning = [{"number": n, "near": near} for n in handover.parts_to_do("scan", parts)]
    parallel("compare", handover.runs(scan_steps.scan_part), scanning)
    handover.fetch(*(f"scan/{n:05d}{suffix}" for n in parts for suffix in (".bands", ".hits")))
    sizes = [stages.read_clean(work, number)[2] for number in parts]
    drops: dict[str, np.ndarray] = {}
    overlaps: dict[str, int] = {}
    if index is not None:
        hits = scan_steps.benchmark_hits(work, parts)
        drops["benchmark"] = hits >= 0
        counts = np.bincount(hits[hits >= 0], minlength=len(index.names)).tolist()
        overlaps = {name: count for name, count in zip(index.names, counts, strict=True) if count}
    if near:
        groups = range(scan_steps.write_groups(work, sizes))
        handover.send(*(f"near/{group:05d}.npz" for group in groups))
        comparing = [{"number": g, "threshold": config.near_duplicates} for g in handover.parts_to_do("near", groups)]
        parallel("verify near duplicates", handover.runs(scan_steps.compare_group), comparing)
        handover.fetch(*(f"near/{group:05d}.later" for group in groups))
        drops["near_duplicate"] = scan_steps.later_mask(work, len(groups), sum(map(len, sizes)))
    return drops, overlaps
