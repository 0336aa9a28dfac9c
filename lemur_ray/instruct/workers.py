"""Where the steps of an instruction table run: as Ray Data pipelines and Ray tasks, or all in this process.

Knows nothing of what a step does. Tables keep their order and their size whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import ray.data
import ray.exceptions

from lemur_ray.instruct.near_duplicates import any_similar, keep_first

Step = Callable[[pa.Table], Any]
"""A table to a table, or to an iterator of several."""


class Workers:
    """workers: tasks at once (None: as many as the cluster has cores), or 0 for this process alone, without Ray."""

    def __init__(self, workers: int | None) -> None:
        if workers != 0 and not ray.is_initialized():
            raise RuntimeError("build_sets needs a Ray cluster: call ray.init first, or pass workers=0")
        self.workers = workers

    def map(self, tables: list[pa.Table], step: Step) -> Iterator[pa.Table]:
        """Every table through a step, in order; a step gives a table, or an iterator of several."""
        if self.workers == 0 or not tables:
            for table in tables:
                out = step(table)
                yield from [out] if isinstance(out, pa.Table) else out
            return
        at_once = min(self.workers, len(tables)) if self.workers else None
        dataset = ray.data.from_arrow(tables).map_batches(
            step, batch_size=None, batch_format="pyarrow", compute=ray.data.TaskPoolStrategy(size=at_once)
        )
        dataset.context.execution_options.preserve_order = True
        dataset.context.enable_progress_bars = False
        dataset.context.print_on_execution_start = False
        try:
            yield from dataset.iter_batches(batch_size=None, batch_format="pyarrow")
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, OSError | ValueError | ImportError):
                raise error.cause from error
            raise

    def keep_first(self, vectors: np.ndarray, threshold: float, block: int) -> np.ndarray:
        """``near_duplicates.keep_first`` with its products on the cluster."""
        if self.workers == 0:
            return keep_first(vectors, threshold, block=block)
        task = ray.remote(num_cpus=1)(any_similar)

        def compare(rows: np.ndarray, blocks: Any, limit: float) -> list[np.ndarray]:
            here = ray.put(rows)
            return list(ray.get([task.remote(here, kept, limit) for kept in blocks]))

        return keep_first(vectors, threshold, block=block, compare=compare, put=ray.put)
