"""Ray Data streams that deliver the training rows of a plan, in order, to the workers of a Ray Train trainer.

Ray Data's iterators have no position (Ray issue #37633), and ``streaming_split`` deals rows by world size. So each rank
gets a separate ordered dataset of row *numbers* from the checkpointed row on; tasks on the cluster read the rows; every
row carries its number, which the training loop asserts."""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray.data
import ray.train

from lemur_ray.config.mesh import FEED_CPUS
from lemur_ray.plan.fetch import Batch, PlanReader, RankRows, iterate
from lemur_ray.plan.plan import Plan
from lemur_ray.storage.file_system import is_bucket

__all__ = ["PlanFeed", "iterate", "rank_dataset"]

BLOCK_BYTES = 16 * 2**20
"""Target bytes of a Ray Data block: many steps of a small model, some of a large one. Smaller blocks raise Ray Data's
share of the CPU time (tests/perf/train/feed_rate.py)."""
MAX_TASKS = 256
"""Maximum number of Ray tasks that read the rows of one rank; each task yields several blocks."""
_BYTES_PER_TOKEN = 20
_NODE = "ray.io/node-id"


class PlanFeed(ray.train.DataConfig):
    """Ray Train data configuration that gives every rank an ordered stream of its rows of a plan.
    Pass it as ``dataset_config`` with ``datasets={"train": ray.data.range(1)}`` (the dataset itself is a placeholder).
    ``configure`` runs for every new worker group with its world size, and calls ``start`` for the first row each time:
    a callable that reads the newest committed checkpoint makes restarts and resizes exact. Batches hold ``row``,
    ``source`` and the arrays of PackedRow; use ``iter_batches`` with rows_per_step / world_size rows."""

    def __init__(
        self,
        plan: Plan,
        corpus: str | Path,
        rows_per_step: int,
        start: Callable[[], int] | int = 0,
        share_of: Callable[[int, int], tuple[int, ...]] = lambda rank, world_size: (rank, world_size),
    ) -> None:
        """corpus: folder or URL. rows_per_step: rows of a global batch. start: first row, or a function that returns
        it. share_of: function of (rank, world size) that returns the index of the rank's part of each batch, the number
        of parts, and optionally the rows of a batch with padding."""
        super().__init__()
        self.plan, self.corpus, self.rows_per_step = plan, str(corpus), rows_per_step
        self.start, self.share_of = start, share_of

    def configure(
        self,
        datasets: dict[str, ray.data.Dataset],
        world_size: int,
        worker_handles: Any = None,
        worker_node_ids: Any = None,
        **kwargs: Any,
    ) -> list[dict[str, ray.data.DataIterator]]:
        """Data iterators of each rank, by name of a dataset; called by Ray Train. world_size: number of ranks.
        worker_node_ids: Ray node of each rank, which reads its rows itself if the corpus is in a bucket. Raises
        ValueError if batches cannot be split over ranks."""
        start = self.start() if callable(self.start) else self.start
        nodes = worker_node_ids if worker_node_ids and is_bucket(self.corpus) else [""] * world_size
        reader = PlanReader(self.plan, self.corpus, len(set(nodes)))
        shards = []
        for rank in range(world_size):
            rows = RankRows(start, self.plan.num_rows, self.rows_per_step, *self.share_of(rank, world_size))
            dataset = rank_dataset(reader, rows, nodes[rank])
            shards.append({name: dataset.iterator() for name in datasets})
        return shards


def rank_dataset(reader: PlanReader, rows: RankRows, node: str = "") -> ray.data.Dataset:
    """Ray dataset of one rank's rows, in order; may be empty. node: id of the host that should read them, or ""."""
    if not len(rows):
        return ray.data.range(0)
    per_block = max(1, BLOCK_BYTES // (reader.seq_len * _BYTES_PER_TOKEN * rows.share)) * rows.share
    per_task = max(1, -(-len(rows) // (per_block * MAX_TASKS))) * per_block
    begins = range(0, len(rows), per_task)
    tasks = [pa.table({"begin": [begin], "end": [min(begin + per_task, len(rows))]}) for begin in begins]

    def fetch(task: Batch) -> Iterator[Batch]:
        blocks = [
            rows.slice(first, min(first + per_block, end))
            for begin, end in zip(task["begin"].tolist(), task["end"].tolist(), strict=True)
            for first in range(begin, end, per_block)
        ]
        with ThreadPoolExecutor(1) as ahead:
            for block, following in itertools.zip_longest(blocks, blocks[1:]):
                if following is not None:
                    ahead.submit(reader.bring, following)  # an error there occurs in fetch again
                yield reader.fetch(block)

    # Fetching is a memory-mapped read and reserves a fraction of a core, so that it fits beside training.
    inputs = ray.data.from_arrow(tasks)
    dataset = inputs.map_batches(
        fetch,
        batch_size=None,
        num_cpus=FEED_CPUS,
        compute=ray.data.TaskPoolStrategy(size=min(2, len(tasks))),
        label_selector={_NODE: node} if node else None,
        fallback_strategy=[{"label_selector": {_NODE: f"!{node}"}}] if node else None,  # if the host is full or lost
    )
    dataset.context.execution_options.preserve_order = True
    dataset.context.enable_progress_bars = False
    dataset.context.print_on_execution_start = False
    return dataset
