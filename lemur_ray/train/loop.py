"""One run, read from top to bottom: mesh, state, resume, data, steps, checkpoints, evaluation, result.

Every worker calls `train` alike; world size 1 needs no Ray at all. Batches come from outside as an iterator that begins
at the row asked for; every row carries its number, which is asserted. Another kind of training uses what is used here
(``opening``, ``step``, ``recorder``, ``checkpoint_schedule``, ``run.attempt``) in a loop of its own. Knows nothing of
how workers are started.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from lemur_ray.config import Recipe
from lemur_ray.corpus.manifest import read_manifest
from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.model.compile_cache import Found, cache_folder, use_compile_cache
from lemur_ray.model.llama import num_params
from lemur_ray.model.sharding import to_devices
from lemur_ray.plan.fetch import PADDING
from lemur_ray.plan.plan import Plan, plan_for
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.train.checkpoint import Checkpoints
from lemur_ray.train.checkpoint_schedule import CheckpointSchedule, Notice, Report
from lemur_ray.train.evaluate import Evaluator
from lemur_ray.train.initial_state import open_state
from lemur_ray.train.pod.placement import all_standing, mesh_here
from lemur_ray.train.pod.slices import RunShape, on_devices, split_batch
from lemur_ray.train.recorder import Recorder
from lemur_ray.train.run import goodput
from lemur_ray.train.run.attempt import RunAttempt
from lemur_ray.train.run.console import opening_lines
from lemur_ray.train.run.fence import Fence
from lemur_ray.train.run.folder import Run, TrainingStopped, check_same_run, fingerprint, write_json
from lemur_ray.train.run.profiler import Profiler
from lemur_ray.train.run.speed import PEAK_FLOPS
from lemur_ray.train.run.watchdog import StepWatchdog, least_s
from lemur_ray.train.step import execution, make_train_step
from lemur_ray.weights.checkpoints import Commit

HostBatch = dict[str, np.ndarray]
Feed = Callable[[int], Iterable[HostBatch]]
"""First plan row wanted -> this worker's share of every global batch from there on: row (rows,) int64, source (rows,)
and tokens, targets, loss_weights, segment_ids, positions (rows, seq_len)."""


def train(
    run: Run,
    feed: Feed,
    *,
    rank: int = 0,
    world_size: int = 1,
    report: Report | None = None,
    preempted: Callable[[], Notice | None] | None = None,
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train a run to its end, from its newest committed checkpoint, and return what ``result.json`` says.

    rank, world_size: this process among those of jax.distributed. report: told (metrics, checkpoint folder) of every
    checkpoint begun, on every rank. preempted: asked every ``preemption_every_steps`` steps by all ranks alike; gives
    all of them the same notice that a host is about to be taken away. log: gets lines for a person, on rank 0.

    Raises:
        TrainingStopped: too many skipped steps in a row, or a checkpoint cannot be written.
        RunFolderError: the checkpoints there are another run's.
    """
    recipe, steps, say = run.recipe, run.recipe.train.steps, log if rank == 0 else _to_nobody
    cache = use_compile_cache(cache_folder(run.out, world_size))
    keep = {"keep": recipe.train.keep_checkpoints, "keep_every": recipe.train.keep_every_steps}
    fence = Fence(run.out) if rank == 0 and is_bucket(run.out) else None
    with (
        _a_full_disk_named(run.out),
        contextlib.ExitStack() as watching,
        Checkpoints(run.checkpoints, **keep, primary=rank == 0, fence=fence) as checkpoints,
    ):
        attempt = RunAttempt(f"{run.out}/goodput.jsonl" if rank == 0 else "", world_size=world_size)

        # Mesh and compiled step.
        where, mesh = _mesh(recipe, rank, world_size)
        plan = plan_for(recipe, read_manifest(run.corpus))
        sources = [source.name for source in plan.sources]
        step_fn = make_train_step(on_devices(recipe, where), mesh, num_sources=len(sources))

        # State: the newest committed checkpoint that can be read, else the beginning.
        step, state, base, beside = open_state(
            recipe, mesh, checkpoints, recognise=partial(_recognised, run), init_from=run.init_from,
            world_size=world_size, say=say,
        )  # fmt: skip

        # Data from the next row on, held-out rows, metrics and who else gets them.
        rows = RowSupply(feed, plan, recipe, where, where.share_of(rank), first_step=step)
        evaluate = Evaluator(recipe, mesh, run.corpus, base)
        described = run.described()
        recorder = Recorder(
            recipe, run.out, attempt, sources=sources, progress=beside.get("progress"), about=described,
            primary=rank == 0, say=say,
        )  # fmt: skip
        profiler = Profiler(recipe, run.out, rank, say)
        watching.callback(profiler.close)
        watching.callback(recorder.close)
        schedule = CheckpointSchedule(
            checkpoints, recipe.train, attempt, world_size=world_size, report=report, preempted=preempted, say=say
        )
        started = _started(recipe, mesh, where, sources, step, rank, world_size, say)

        # Steps. Where several workers wait for each other, one that waits in vain ends.
        watchdog = watching.enter_context(StepWatchdog(watches=world_size > 1, least_s=least_s()))
        attempt.spent.switch("first_step")
        while step < steps:
            with attempt.spent.during("data"), watchdog.patient():
                batch = rows.batch(step)
            profiler.before(step + 1)
            state, metrics = step_fn(state, to_devices(batch, mesh), *([] if base is None else [base]))
            recorder.settle()  # the step before
            step += 1
            if recorder.took(step, metrics, partial(rows.ranges, step)):
                say(f"first step after {recorder.first_step_s:.1f} s; {cache}")
            with recorder.pausing(), watchdog.patient():
                profiler.after(step, metrics)
            if evaluate.due(step):  # before the next step takes the parameters' memory
                with watchdog.patient():
                    recorder.settle(partial(evaluate, state.params))
            if due := schedule.due(step):
                recorder.settle()
                with recorder.pausing(), watchdog.patient():
                    progress = {"rows": step * recipe.train.rows_per_step, **described, "progress": recorder.progress()}
                    schedule.save(step, state, progress, recorder.loss)
                recorder.saved = schedule.saved
            checkpoints.poll()
            attempt.sign(step, now=due)
            watchdog.step_ended(step)
        recorder.settle()
        profiler.close()
        recorder.close()
        schedule.finish(steps, recorder.loss)

        # Result, written last: a run with it is finished.
        return _finished(run, plan, cache, started, attempt, recorder, say)


class RowSupply:
    """This worker's share of the plan's rows from a step on, batch by batch; that they are those is asserted."""

    def __init__(self, feed: Feed, plan: Plan, recipe: Recipe, where: RunShape, part: int, *, first_step: int) -> None:
        self._plan, self._train, self._part, self._num_parts = plan, recipe.train, part, where.num_shares
        self._padding = split_batch(recipe.train, where).padding
        self._batches = iter(feed(first_step * recipe.train.rows_per_step))

    def batch(self, step: int) -> HostBatch:
        """The batch that step number ``step`` (from 0) trains on. Raises TrainingStopped where the data has ended."""
        batch = next(self._batches, None)
        if batch is None:
            raise TrainingStopped(
                f"the data ended at step {step} of {self._train.steps}: rebuild the corpus or train fewer steps"
            )
        each = self._train.rows_per_step
        rows = np.append(np.arange(step * each, (step + 1) * each), np.full(self._padding, PADDING))
        check_rows(batch["row"], rows, self._part, self._num_parts)
        return batch

    def ranges(self, steps: int) -> list[list[int]]:
        """The rows of the last of so many steps, as ``--train.skip-rows`` counts them."""
        each = self._train.rows_per_step
        return self._plan.ranges_without_skips((steps - 1) * each, steps * each)


def check_rows(found: np.ndarray, rows: np.ndarray, part: int, num_parts: int) -> None:
    """The rows of a batch are this part of the global batch, in order; anything else is a bug in the feed."""
    share = len(rows) // num_parts
    expected = rows[part * share : (part + 1) * share]
    if not np.array_equal(found, expected):
        raise AssertionError(f"part {part} got plan rows {found.tolist()}, expected {expected.tolist()}")


def _to_nobody(line: str) -> None:
    """What a person reads comes from rank 0 alone."""


@contextlib.contextmanager
def _a_full_disk_named(out: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_full_disk(error):
            raise
        raise TrainingStopped(
            f"no space left in {out} ({error}): make room, then run the same command again to resume"
        ) from error


def _mesh(recipe: Recipe, rank: int, world_size: int) -> tuple[RunShape, jax.sharding.Mesh]:
    """Raises TrainingStopped where devices, mesh and batch do not agree."""
    try:
        where, mesh = mesh_here(recipe, rank=rank, world_size=world_size)
        split_batch(recipe.train, where)
    except ValueError as error:
        raise TrainingStopped(str(error)) from error
    return where, mesh


def _recognised(run: Run, commit: Commit) -> str:
    """Where a checkpoint of this run stands. Raises RunFolderError for another's, TrainingStopped for a wrong place."""
    check_same_run(commit.plan, run, f"checkpoint {run.checkpoints}/{commit.step}")
    rows = commit.step * run.recipe.train.rows_per_step
    if commit.plan["rows"] != rows:
        raise TrainingStopped(f"checkpoint {commit.step} stands at row {commit.plan['rows']}, expected {rows}")
    return f"the next plan row is {rows}"


def _started(
    recipe: Recipe, mesh: jax.sharding.Mesh, where: RunShape, sources: list[str], step: int, rank: int,
    world_size: int, say: Callable[[str], None],
) -> dict[str, Any]:  # fmt: skip
    """Tell a person what runs where; what the result says of this attempt."""
    how = execution(recipe, mesh)
    found: dict[str, Any] = {
        "first_step": step, "world_size": world_size, "devices": len(jax.devices()), "attention": how.attention,
        "attention_fallback": how.fallback,
    }  # fmt: skip
    if world_size > 1:
        found["workers"] = all_standing(where, rank)
    kind = jax.devices()[0].device_kind
    for line in opening_lines(recipe, mesh.shape, sources, world_size, kind, kind in PEAK_FLOPS):
        say(line)
    say(f"attention: {how.attention}" + (f" ({how.fallback})" if how.fallback else ""))
    return found


def _finished(
    run: Run, plan: Plan, cache: Found, started: dict[str, Any], attempt: RunAttempt, recorder: Recorder,
    say: Callable[[str], None],
) -> dict[str, Any]:  # fmt: skip
    """The result: how good the model is, where the time went, how exact a resume was; kept by rank 0."""
    recipe, steps = run.recipe, run.recipe.train.steps
    result = {
        "name": recipe.name, "hash": recipe.hash, "steps": steps, "rows": steps * recipe.train.rows_per_step,
        "tokens": steps * recipe.tokens_per_step, "parameters": num_params(recipe.model), **recorder.summary(),
        "compile_cache": vars(cache).copy(), **started, "mixture": plan.summary(), "corpus": fingerprint(run.corpus),
        "init_from": run.init_from, "checkpoint": f"{run.checkpoints}/{steps}", "out": run.out,
    }  # fmt: skip
    if recorder.log is None:
        return result
    attempt.sign(steps, now=True)
    result["goodput"] = attempt.account()
    say(goodput.described(result["goodput"]))
    differing = recorder.log.differing
    result |= {"replayed_lines": recorder.log.replayed, "replays_that_differ": differing}
    if differing:
        say(f"WARNING: replayed steps came out different: {differing[:10]}; this resume was not exact")
    write_json(f"{run.out}/result.json", result)
    return result
