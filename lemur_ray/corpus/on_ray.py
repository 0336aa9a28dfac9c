"""Execution of build steps as Ray Data pipelines and Ray tasks, or sequentially in this process.

The only file of the corpus and of the instruction table that imports Ray. Tables keep their order and size for any
number of workers, so results do not depend on it."""

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

Step = Callable[[pa.Table], Any]
"""A function from a table to a table, or to an iterator of tables."""
WAVE = 20_000
"""Maximum tasks of one Ray Data pipeline: the driver holds the state of all of them."""
_ONE_THREAD = {"RAYON_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Environment variables that limit a task's libraries to its one core; Ray itself sets OMP_NUM_THREADS."""


class Workers:
    """Executor of build steps: on all hosts of the Ray cluster, on this host only, or in this process.
    workers: maximum number of concurrent tasks (None: one per core of the cluster), or 0 for this process without Ray.
    must_see: a folder that steps read and write. must_read: files that steps read. If a host of the cluster cannot
    access them, only this host works, and ``fallback_reason`` (else empty) names the hosts without access."""

    def __init__(
        self, workers: int | None, must_see: Path | None = None, *, must_read: Sequence[str | Path] = ()
    ) -> None:
        if workers != 0 and not ray.is_initialized():
            raise RuntimeError("a build needs a Ray cluster: call ray.init first, or pass workers=0")
        self.workers = workers
        self.fallback_reason = ""
        self._options: dict[str, Any] = {}
        blind = []
        if workers != 0 and (must_see or must_read):
            blind = hosts_without_access(must_read, [must_see] if must_see else [])
        if blind:
            self.fallback_reason = f"{', '.join(blind)} cannot see {must_see or Path(must_read[0]).parent}"
            here = ray.get_runtime_context().get_node_id()
            if any(node["NodeID"] == here and node["Resources"].get("CPU") for node in ray.nodes()):
                self._options = {"scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False)}
            else:  # a head that takes no work
                self.workers = 0

    def map(self, tables: Sequence[pa.Table], step: Step, memory: float = 0.0) -> Iterator[pa.Table]:
        """Apply ``step`` to every table and yield its result tables in order, as they come; the step of a lost worker
        runs again. memory: bytes that a task reserves on its host, at most half of what the smallest host has. An
        OSError, ImportError or ValueError of a step is raised as itself, not wrapped by Ray."""
        if self.workers == 0 or not tables:
            for table in tables:
                out = step(table)
                yield from [out] if isinstance(out, pa.Table) else out
            return
        for begin in range(0, len(tables), WAVE):
            yield from self._wave(tables[begin : begin + WAVE], step, memory)

    def _wave(self, tables: Sequence[pa.Table], step: Step, memory: float) -> Iterator[pa.Table]:
        def on_one_core(table: pa.Table) -> Any:
            for name, value in _ONE_THREAD.items():
                os.environ.setdefault(name, value)
            pa.set_cpu_count(1)
            return step(table)

        at_once = min(self.workers, len(tables)) if self.workers else None
        dataset = ray.data.from_arrow(list(tables)).map_batches(
            on_one_core,
            batch_size=None,
            batch_format="pyarrow",
            compute=ray.data.TaskPoolStrategy(size=at_once),
            num_cpus=1,
            memory=min([memory, *(size / 2 for size in self._host_memory())]),
            **self._options,
        )
        dataset.context.execution_options.preserve_order = True
        dataset.context.raise_original_map_exception = True
        dataset.context.enable_progress_bars = False
        dataset.context.print_on_execution_start = False
        try:
            yield from dataset.iter_batches(batch_size=None, batch_format="pyarrow")
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, OSError | ValueError | ImportError):
                raise error.cause from error
            raise

    def _host_memory(self) -> list[float]:
        """Bytes of memory of each host that tasks may run on, without those that do not tell."""
        pinned = self._options.get("scheduling_strategy")
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        nodes = [node for node in nodes if pinned is None or node["NodeID"] == pinned.node_id]
        return [node["Resources"]["memory"] for node in nodes if "memory" in node["Resources"]]

    def put(self, value: Any) -> Any:
        """Reference to ``value`` for calls of ``run``, to transfer it only once; without Ray, the value itself."""
        return value if self.workers == 0 else ray.put(value)

    def run(self, function: Callable[..., Any], calls: Sequence[Sequence[Any]]) -> list[Any]:
        """Results of calling the function with each argument list, in order. References from ``put`` become values.
        calls: argument lists."""
        if self.workers == 0:
            return [function(*arguments) for arguments in calls]
        task = ray.remote(num_cpus=1, **self._options)(function)
        return list(ray.get([task.remote(*arguments) for arguments in calls]))


def hosts_without_access(
    files: Sequence[str | Path],
    folders: Sequence[Path] = (),
    works: Callable[[Any], bool] = lambda resources: True,
    *,
    silent_sees: bool = False,
) -> list[str]:
    """Names of cluster hosts that lack one of ``files`` or cannot see new files in one of ``folders``, which are made
    if missing. Runs a Ray task on each host.
    works: function of a host's Ray resources that returns whether to check it. silent_sees: whether a host that does
    not answer within 60 s counts as having access. [] if all have access, or if this is the only host to check."""
    nodes = [node for node in ray.nodes() if node["Alive"] and works(node["Resources"])]
    if not nodes or {node["NodeID"] for node in nodes} == {ray.get_runtime_context().get_node_id()}:
        return []
    marks = []
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        marks.append(folder / f".seen-{uuid.uuid4().hex}")
        marks[-1].touch()
    expected = {str(path): os.path.getsize(path) for path in (*files, *marks)}

    @ray.remote(num_cpus=0, max_retries=0)
    def sees(sizes: dict[str, int]) -> bool:
        return all(os.path.isfile(path) and os.path.getsize(path) == size for path, size in sizes.items())

    try:
        tasks = [
            sees.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            for node in nodes
        ]
        answers = [one.remote(expected) for one in tasks]
        access = [_answer(answer, silent_sees) for answer in answers]
        return [node["NodeManagerHostname"] for node, seen in zip(nodes, access, strict=True) if not seen]
    finally:
        for mark in marks:
            mark.unlink()


def _answer(task: Any, otherwise: bool) -> bool:
    """Boolean result of a Ray task, or ``otherwise`` if it takes more than 60 s or its host is lost."""
    try:
        return bool(ray.get(task, timeout=60))
    except ray.exceptions.RayError:
        return otherwise
