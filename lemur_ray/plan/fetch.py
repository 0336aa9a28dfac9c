"""Read the training rows of a plan from a corpus as batches of arrays.

Used by the Ray Data feed, and by callers that need the same batches without a cluster."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lemur_ray.corpus.bucket_rows import BucketRows, limit_environment, open_rows, plan_copies, shard_cache
from lemur_ray.plan.plan import Plan, PlanError
from lemur_ray.storage.file_system import bucket_environment, is_bucket

Batch = dict[str, np.ndarray]
"""Arrays by name: ``row`` int64 (rows,), ``source`` int32 (rows,), the five of PackedRow, each (rows, seq_len)."""

PADDING = -1
"""Row number of padding: a row of weight zero that makes a batch divide over the devices."""
LEAST_USED = 1 / 4
"""Fraction of a source's rows that a host must read for its shards to be copied to that host."""
SMALL_BYTES = 2**28
"""Bytes up to which a source is copied however few of its rows are read: single requests would take longer."""


def copied_to_host(plan: Plan, sizes: Sequence[int], hosts: int, limit_bytes: int) -> list[bool]:
    """For each source of a plan, whether to copy all its shards to every host, if ``hosts`` hosts share the rows.
    Sources with the most reads per row come first; one that does not fit into what is left of ``limit_bytes`` is
    skipped. A source of which a host reads less than LEAST_USED is only copied if it is small (SMALL_BYTES). sizes:
    bytes of each source."""
    passes = [count / hosts / source.rows for source, count in zip(plan.sources, plan.counts, strict=True)]
    copied, room = [False] * len(sizes), limit_bytes
    for index in sorted(range(len(sizes)), key=lambda index: -passes[index]):
        if (passes[index] >= LEAST_USED or sizes[index] <= SMALL_BYTES) and sizes[index] <= room:
            copied[index], room = True, room - sizes[index]
    return copied


class PlanReader:
    """Reader of the rows of a plan from a corpus in a folder or bucket. Cheap to pickle; maps files on first use."""

    def __init__(self, plan: Plan, corpus: str | Path, hosts: int = 1, *, check: bool = True) -> None:
        """corpus: folder or URL. hosts: number of hosts that share the rows. check: verify file sizes in a bucket.
        Raises PlanError if a source has not the plan's number of rows, RowSetError if rows are missing or damaged."""
        self.plan, self.corpus, self.hosts = plan, str(corpus), hosts
        self.readers = [open_rows(corpus, source.name, check=check) for source in plan.sources]
        self._chosen = not is_bucket(self.corpus)
        for source, reader in zip(plan.sources, self.readers, strict=True):
            if len(reader) != source.rows:
                raise PlanError(
                    f"source {source.name} has {len(reader)} rows in {self.corpus}/rows/{source.name}, the plan was "
                    f"made for {source.rows}: the corpus was built again since; make a new plan"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments and bucket settings; unpickling opens the corpus again on the receiving host."""
        environment = {**bucket_environment(), **limit_environment()} if is_bucket(self.corpus) else {}
        return _reopen, (self.plan, self.corpus, self.hosts, environment)

    @property
    def seq_len(self) -> int:
        return self.readers[0].seq_len

    def fetch(self, rows: np.ndarray) -> Batch:
        """Batch of the plan's rows with these numbers, in this order; the number PADDING gives a row of weight 0. In a
        bucket, shards are downloaded or read in parts. Raises RowSetError, IndexError for a number beyond the plan."""
        self._choose()
        rows = np.asarray(rows, np.int64).reshape(-1)
        where = self.plan.rows(np.maximum(rows, 0))
        batch: Batch = {"row": rows, "source": where.source.astype(np.int32)}
        for index in np.unique(where.source).tolist():
            at = np.flatnonzero(where.source == index)
            packed = self.readers[index].read(where.example[at]).as_dict()
            for name, values in packed.items():
                if name not in batch:
                    batch[name] = np.empty((len(rows), values.shape[1]), values.dtype)
                batch[name][at] = values
        if (rows == PADDING).any():
            batch["loss_weights"] = np.where(rows[:, None] == PADDING, 0, batch["loss_weights"]).astype(np.float32)
        return batch

    def bring(self, rows: np.ndarray) -> None:
        """Download to this host the shards that ``fetch`` of ``rows`` needs, of sources that are to be copied; nothing
        for a corpus in a folder. Raises RowSetError if a shard is missing or damaged."""
        if not is_bucket(self.corpus):
            return
        self._choose()
        where = self.plan.rows(np.maximum(np.asarray(rows, np.int64).reshape(-1), 0))
        for index, reader in enumerate(self.readers):
            if isinstance(reader, BucketRows):
                reader.bring(where.example[where.source == index])

    def _choose(self) -> None:
        """Decide once which sources are copied to this host, by the limit of its cache of shards."""
        if not self._chosen:
            readers = [reader for reader in self.readers if isinstance(reader, BucketRows)]
            sizes = [reader.size_bytes for reader in readers]
            plan_copies(readers, copied_to_host(self.plan, sizes, self.hosts, shard_cache().limit_bytes()))
            self._chosen = True


def _reopen(plan: Plan, corpus: str, hosts: int, environment: dict[str, str]) -> PlanReader:
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    return PlanReader(plan, corpus, hosts, check=False)


@dataclass(frozen=True)
class RankRows:
    """Plan row numbers that one rank reads, as a sequence: an equal part of every global batch from row ``start`` on.
    With B = ``rows_per_step`` and n = ``world_size``: rows [rank B/n, (rank + 1) B/n) of each batch; its length is the
    number of them up to ``num_rows``, the rows of the plan. padded: B with appended PADDING rows; 0: no padding. Raises
    ValueError if n does not divide B, or B does not divide ``start``."""

    start: int
    num_rows: int
    rows_per_step: int
    rank: int = 0
    world_size: int = 1
    padded: int = 0

    def __post_init__(self) -> None:
        if (rows := self.padded or self.rows_per_step) % self.world_size:
            raise ValueError(f"{rows} rows per step cannot be split over {self.world_size} workers: use a multiple")
        if self.start % self.rows_per_step:
            raise ValueError(f"start row {self.start}: expected a multiple of the {self.rows_per_step} rows per step")

    @property
    def share(self) -> int:
        return (self.padded or self.rows_per_step) // self.world_size

    def __len__(self) -> int:
        steps, rest = divmod(max(0, self.num_rows - self.start), self.rows_per_step)
        return steps * self.share + min(max(0, rest - self.rank * self.share), self.share)

    def slice(self, begin: int, end: int) -> np.ndarray:
        """Plan row numbers (int64), or PADDING, of positions [begin, end) in the sequence of this rank's rows."""
        step, inside = np.divmod(np.arange(begin, end), self.share)
        inside += self.rank * self.share
        return np.where(inside < self.rows_per_step, self.start + step * self.rows_per_step + inside, PADDING)


def iterate(
    plan: Plan, corpus: str | Path, start: int = 0, *, rows_per_step: int = 1, rank: int = 0, world_size: int = 1
) -> Iterator[Batch]:
    """Yield the batch of each step for one rank, from row ``start`` of the plan on, without Ray; the same batches as
    the feed. corpus: folder or URL. rows_per_step: rows of a global batch, of which each of ``world_size`` ranks gets
    an equal part. Raises ValueError if that is impossible, PlanError if corpus and plan differ, RowSetError if a row
    set is missing or damaged."""
    reader = PlanReader(plan, corpus)
    mine = RankRows(start, plan.num_rows, rows_per_step, rank, world_size)
    for begin in range(0, len(mine), mine.share):
        yield reader.fetch(mine.slice(begin, min(begin + mine.share, len(mine))))
