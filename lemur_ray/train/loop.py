"""The training loop of a run: mesh, state, resume, data, steps, checkpoints, evaluation, result.

Every worker calls `train` with the same arguments; a world size of 1 needs no Ray. The caller supplies batches as an
iterator that begins at a requested row; every row carries its number, which is asserted. Another kind of training uses
the same parts (``initial_state``, ``step``, ``recorder``, ``checkpoint_schedule``, ``run.attempt``) in a loop of its
own. Knows nothing of how workers are started."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from lemur_ray.corpus.manifest import read_manifest
from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.model.compile_cache import CacheCounts, cache_folder, use_compile_cache
from lemur_ray.model.llama import num_params
from lemur_ray.model.sharding import to_devices
from lemur_ray.plan.fetch import PADDING
from lemur_ray.plan.plan import Plan, plan_for
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.train.checkpoint import Checkpoints
from lemur_ray.train.checkpoint_schedule import CheckpointSchedule, Notice, Report
from lemur_ray.train.evaluate import Evaluator
from lemur_ray.train.initial_state import open_state
from lemur_ray.train.pod.compiler_options import described_settings
from lemur_ray.train.pod.placement import mesh_here, worker_positions
from lemur_ray.train.pod.slices import RunShape, on_devices, split_batch
from lemur_ray.train.recorder import Recorder
from lemur_ray.train.run import goodput
from lemur_ray.train.run.attempt import RunAttempt
from lemur_ray.train.run.console import opening_lines
from lemur_ray.train.run.coordination import SaveAgreement, share
from lemur_ray.train.run.fence import Fence
from lemur_ray.train.run.folder import Run, TrainingStopped, check_same_run, fingerprint, write_json
from lemur_ray.train.run.profiler import Profiler
from lemur_ray.train.run.speed import PEAK_FLOPS
from lemur_ray.train.run.watchdog import StepWatchdog, least_s
from lemur_ray.train.step import TrainState, execution, make_train_step
from lemur_ray.weights.checkpoints import Commit

HostBatch = dict[str, np.ndarray]
Feed = Callable[[int], Iterable[HostBatch]]
"""Called with the number of the first plan row; returns this worker's share of every global batch from that row on: row
(rows,) int64, source (rows,), and tokens, targets, loss_weights, segment_ids, positions (rows, seq_len)."""


@dataclasses.dataclass(frozen=True)
class Worker:
    """This process (``rank`` of ``world_size``, as in jax.distributed) among the workers of a run, with its callbacks
    and its right to write."""

    rank: int = 0
    world_size: int = 1
    report: Report | None = None
    """Called with (metrics, checkpoint folder) for every committed checkpoint, on every rank."""
    preempted: Callable[[], Notice | None] | None = None
    """Returns a preemption notice or None; called every ``preemption_every_steps`` steps, on rank 0 like ``log``."""
    log: Callable[[str], None] = print
    fence: Fence | None = None
    """That of this attempt, the same on every worker. None: ``train`` makes one for a run in a bucket."""

    @property
    def primary(self) -> bool:
        """Whether this worker writes the run's files and log."""
        return self.rank == 0

    def check(self) -> None:
        """Raises Superseded if a newer attempt of the run has begun."""
        if self.fence is not None:
            self.fence.check()

    def say(self, line: str) -> None:
        """Log a line for a person; workers other than the primary one are silent."""
        if self.primary:
            self.log(line)


ALONE = Worker()
"""The only worker of a run."""


def train(run: Run, feed: Feed, worker: Worker = ALONE) -> dict[str, Any]:
    """Train a run to its end, from its newest committed checkpoint, and return the content of ``result.json``. Writes
    only to the run folder. feed: returns the batches of this worker's rows. Raises TrainingStopped for too many skipped
    steps in a row or a failed save, Superseded for a newer attempt, RunFolderError for another run's checkpoints."""
    fence = worker.fence or _fence_of_one_worker(run, worker.world_size)
    worker, steps = dataclasses.replace(worker, fence=fence), run.recipe.train.steps
    cache = use_compile_cache(cache_folder(run.out, worker.world_size))
    keep = {"keep": run.recipe.train.keep_checkpoints, "keep_every": run.recipe.train.keep_every_steps}
    with (
        fence.explaining_errors() if fence is not None else contextlib.nullcontext(),
        _full_disk_as_stop(run.out),
        contextlib.ExitStack() as cleanup,
        Checkpoints(run.checkpoints, **keep, primary=worker.primary, fence=fence) as checkpoints,
    ):
        start = _Start(run, worker, checkpoints)
        step, state = start.restore(feed, cleanup)
        attempt, recorder, rows = start.attempt, start.recorder, start.rows

        # With several workers, one that waits in vain for the others ends its process.
        watchdog = cleanup.enter_context(StepWatchdog(watches=worker.world_size > 1, least_s=least_s()))
        attempt.spent.switch("first_step")
        while step < steps:
            with attempt.spent.during("data"), watchdog.patient():
                batch = rows.batch(step)
            start.profiler.before(step + 1)
            state, metrics = start.step_fn(state, to_devices(batch, start.mesh), *start.frozen)
            recorder.settle()  # the step before
            step += 1
            if recorder.took(step, metrics, partial(rows.ranges, step)):
                worker.say(f"first step after {recorder.first_step_s:.1f} s; {cache}")
            with recorder.pausing(), watchdog.patient():
                start.profiler.after(step, metrics)
            if start.evaluate.due(step):  # before the next step takes the parameters' memory
                with watchdog.patient():
                    recorder.settle(partial(start.evaluate, state.params))
            if due := start.schedule.due(step):
                recorder.settle()
                with recorder.pausing(), watchdog.patient():
                    start.save(step, state)
            checkpoints.poll()
            attempt.sign(step, now=due)
            watchdog.step_ended(step)
        return start.finish(cache)


def _fence_of_one_worker(run: Run, world_size: int) -> Fence | None:
    if not is_bucket(run.out):
        return None
    if world_size > 1:
        raise ValueError(f"{run.out}: several workers of a run in a bucket need one fence")
    return Fence(run.out)


class _Start:
    """Objects that one start of a run trains with; without the train state, whose memory each step reuses."""

    def __init__(self, run: Run, worker: Worker, checkpoints: Checkpoints) -> None:
        self.run, self.worker, self.checkpoints = run, worker, checkpoints
        self.attempt = RunAttempt(
            f"{run.out}/goodput.jsonl" if worker.primary else "", worker.check, world_size=worker.world_size
        )
        try:
            self.where, self.mesh = mesh_here(run.recipe, rank=worker.rank, world_size=worker.world_size)
            split_batch(run.recipe.train, self.where)
        except ValueError as error:
            raise TrainingStopped(str(error)) from error
        self.plan = plan_for(run.planned, read_manifest(run.corpus))
        self.sources = [source.name for source in self.plan.sources]
        recipe = on_devices(run.recipe, self.where)
        self.step_fn = make_train_step(recipe, self.mesh, num_sources=len(self.sources))

    def restore(self, feed: Feed, cleanup: contextlib.ExitStack) -> tuple[int, TrainState]:
        """Restore the run; open its data, evaluation and records. Returns (steps taken, state after them)."""
        run, worker, recipe, say = self.run, self.worker, self.run.recipe, self.worker.say
        self.described = share(run.described)
        step, state, base, content = open_state(
            recipe, self.mesh, self.checkpoints, recognise=self._recognised, init_from=run.init_from,
            stage=run.stage, world_size=worker.world_size, say=say,
        )  # fmt: skip
        self.frozen = () if base is None else (base,)
        self.rows = RowSupply(feed, self.plan, run, self.where, self.where.share_of(worker.rank), first_step=step)
        self.evaluate = Evaluator(recipe, self.mesh, run.corpus, base)
        self.recorder = Recorder(
            recipe, run.out, self.attempt, sources=self.sources, progress=content.get("progress"),
            about=self.described, primary=worker.primary, say=say,
        )  # fmt: skip
        self.checkpoints.before_commit = self.recorder.flush
        self.profiler = Profiler(recipe, run.out, worker.rank, say, worker.check)
        cleanup.callback(self.profiler.close)
        cleanup.callback(self.attempt.close)
        cleanup.callback(self.recorder.close)
        if (agreement := SaveAgreement.of_workers(worker.rank, worker.world_size, step)) is not None:
            cleanup.callback(agreement.close)
        self.schedule = CheckpointSchedule(
            self.checkpoints, recipe.train, self.attempt, report=worker.report, preempted=worker.preempted, say=say,
            agreement=agreement,
        )  # fmt: skip
        self.fields = {"first_step": step, **self._placement()}
        return step, state

    def _recognised(self, commit: Commit) -> str:
        """Describe a checkpoint's position for the log. Raises RunFolderError if it is another run's, TrainingStopped
        if it is at another row than its step implies."""
        run = self.run
        check_same_run(commit.plan, run, f"checkpoint {commit.folder}", self.described)
        rows = run.row_after(commit.step)
        if commit.plan["rows"] != rows:
            raise TrainingStopped(f"checkpoint {commit.step} stands at row {commit.plan['rows']}, expected {rows}")
        return f"the next plan row is {rows}"

    def _placement(self) -> dict[str, Any]:
        """Log devices, mesh and attention kernel; returns them as fields of ``result.json``. Every process calls it."""
        worker, how = self.worker, execution(self.run.recipe, self.mesh)
        fields: dict[str, Any] = {
            "world_size": worker.world_size, "devices": len(jax.devices()), "attention": how.forward.attention,
            "attention_fallback": how.fallback, "compiled_with": described_settings(jax.devices()[0]),
        }  # fmt: skip
        if worker.world_size > 1:
            fields["workers"] = worker_positions(self.where, worker.rank)
        shape, kind = self.mesh.shape, jax.devices()[0].device_kind
        for line in opening_lines(self.run.recipe, shape, self.sources, worker.world_size, kind, kind in PEAK_FLOPS):
            worker.say(line)
        if settings := fields["compiled_with"]:
            worker.say(f"compiled with {', '.join(f'{name}={value}' for name, value in settings.items())}")
        kernel = how.forward.attention
        if kernel == "splash":
            fields["attention_block"] = how.forward.limits.block
            kernel += f" in blocks of at most {how.forward.limits.block} tokens"
        worker.say(f"attention: {kernel}" + (f" ({how.fallback})" if how.fallback else ""))
        return fields

    def save(self, step: int, state: TrainState) -> None:
        content = {"rows": self.run.row_after(step), **self.described, "progress": self.recorder.progress()}
        self.schedule.save(step, state, content, self.recorder.loss)
        self.recorder.saved = self.schedule.saved

    def finish(self, cache: CacheCounts) -> dict[str, Any]:
        """Commit the last checkpoint, then write ``result.json`` on rank 0, which marks the run as finished.
        Returns its content: losses, seconds by item, and how exact each resume was."""
        run, recipe, recorder, say = self.run, self.run.recipe, self.recorder, self.worker.say
        steps = recipe.train.steps
        recorder.settle()
        self.profiler.close()
        recorder.close()
        self.schedule.finish(steps, recorder.loss)
        result = {
            "name": recipe.name, "hash": recipe.hash, "steps": steps, "rows": steps * recipe.train.rows_per_step,
            "tokens": steps * recipe.tokens_per_step, "parameters": num_params(recipe.model), **recorder.summary(),
            "compile_cache": vars(cache).copy(), **self.fields, "mixture": self.plan.summary(),
            "corpus": fingerprint(run.corpus), "init_from": run.init_from,
            "checkpoint": self.checkpoints.path(steps), "out": run.out,
        }  # fmt: skip
        if recorder.log is None:
            return result
        self.attempt.sign(steps, now=True)
        result["goodput"] = self.attempt.account()
        say(goodput.described(result["goodput"]))
        differing = recorder.log.differing
        result |= {"replayed_lines": recorder.log.replayed, "replays_that_differ": differing}
        if differing:
            say(f"WARNING: replayed steps came out different: {differing[:10]}; this resume was not exact")
        recorder.flush()
        if self.worker.fence is not None:
            return self.worker.fence.write_json("result.json", result)
        write_json(f"{run.out}/result.json", result)
        return result


class RowSupply:
    """Batches of this worker's share of a plan's rows, from step ``first_step`` on; asserts their row numbers. where:
    shape of the run, which cuts every batch into ``num_shares`` equal parts. part: that of this worker, from 0."""

    def __init__(self, feed: Feed, plan: Plan, run: Run, where: RunShape, part: int, *, first_step: int) -> None:
        self._plan, self._run, self._part, self._num_parts = plan, run, part, where.num_shares
        self._padding = split_batch(run.recipe.train, where).padding
        self._batches = iter(feed(run.row_after(first_step)))

    def batch(self, step: int) -> HostBatch:
        """The batch of the step after ``step`` steps. To be called for consecutive steps. Raises TrainingStopped if the
        data has ended."""
        batch = next(self._batches, None)
        if batch is None:
            raise TrainingStopped(
                f"the data ended at step {step} of {self._run.recipe.train.steps}: rebuild the corpus or train fewer "
                "steps"
            )
        first, end = self._run.row_after(step), self._run.row_after(step + 1)
        rows = np.append(np.arange(first, end), np.full(self._padding, PADDING))
        check_rows(batch["row"], rows, self._part, self._num_parts)
        return batch

    def ranges(self, steps: int) -> list[list[int]]:
        """Half-open [first, end] plan rows of the batch of step number ``steps`` (from 1), in the numbering of
        ``--train.skip-rows``."""
        return self._plan.ranges_without_skips(self._run.row_after(steps - 1), self._run.row_after(steps))


def check_rows(actual: np.ndarray, rows: np.ndarray, part: int, num_parts: int) -> None:
    """Assert that a batch holds part ``part`` of the global batch, in order; anything else is a bug in the feed.
    actual: (rows / num_parts,) row numbers of the batch. rows: (rows,) those of the global batch."""
    share = len(rows) // num_parts
    expected = rows[part * share : (part + 1) * share]
    if not np.array_equal(actual, expected):
        raise AssertionError(f"part {part} got plan rows {actual.tolist()}, expected {expected.tolist()}")


@contextlib.contextmanager
def _full_disk_as_stop(out: str) -> Iterator[None]:
    """Turn an OSError for want of disk space into TrainingStopped with what to do."""
    try:
        yield
    except OSError as error:
        if not is_full_disk(error):
            raise
        raise TrainingStopped(
            f"no space left in {out} ({error}): make room, then run the same command again to resume"
        ) from error
