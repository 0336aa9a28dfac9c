"""One run, read from top to bottom: mesh, state, resume, data, steps, checkpoints, evaluation, result.

Every worker calls `train` alike; world size 1 needs no Ray at all. Batches come from outside as an iterator that begins
at the row asked for; every row carries its number, which is asserted. Knows nothing of how workers are started.
"""

from __future__ import annotations

import contextlib
import errno
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from lemur_ray.checkpoints import Commit
from lemur_ray.corpus.manifest import read_manifest
from lemur_ray.model.compile_cache import Found, cache_folder, use_compile_cache
from lemur_ray.model.llama import num_params
from lemur_ray.model.lora import adapted
from lemur_ray.model.sharding import batch_sharding
from lemur_ray.plan.plan import plan_for
from lemur_ray.train.checkpoint import Checkpoints, UnreadableCheckpoint
from lemur_ray.train.evaluate import BY_KIND, BY_SOURCE, Evaluator
from lemur_ray.train.initial_params import frozen_base, initial_params
from lemur_ray.train.metrics import MetricsLog, Window, finite
from lemur_ray.train.pod.placement import all_standing, mesh_here
from lemur_ray.train.pod.slices import check_batch
from lemur_ray.train.run import goodput
from lemur_ray.train.run.console import opening_lines, progress_lines
from lemur_ray.train.run.folder import Run, TrainingStopped, check_same_run, fingerprint, write_json
from lemur_ray.train.run.profiler import Profiler
from lemur_ray.train.run.sinks import open_sinks
from lemur_ray.train.run.speed import PEAK_FLOPS, memory_peaks, speeds
from lemur_ray.train.step import abstract_state, execution, init_state, make_train_step

HostBatch = dict[str, np.ndarray]
Notice = str
"""That a host is about to be taken away, for a person; another text is another notice."""
Feed = Callable[[int], Iterable[HostBatch]]
"""First plan row wanted -> this worker's share of every global batch from there on: row (rows,) int64, source (rows,)
and tokens, targets, loss_weights, segment_ids, positions (rows, seq_len)."""


def train(
    run: Run,
    feed: Feed,
    *,
    rank: int = 0,
    world_size: int = 1,
    report: Callable[[dict[str, Any], str], None] | None = None,
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
    cache, wanted = use_compile_cache(cache_folder(run.out, world_size)), run.recipe.train
    try:
        with (
            contextlib.ExitStack() as watching,
            Checkpoints(
                run.checkpoints, keep=wanted.keep_checkpoints, keep_every=wanted.keep_every_steps, primary=rank == 0
            ) as checkpoints,
        ):
            return _train(run, feed, checkpoints, watching, rank, world_size, report, preempted, log, cache)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise TrainingStopped(
            f"no space left in {run.out} ({error}): make room, then run the same command again to resume"
        ) from error


def _train(
    run: Run,
    feed: Feed,
    checkpoints: Checkpoints,
    watching: contextlib.ExitStack,
    rank: int,
    world_size: int,
    report: Callable[[dict[str, Any], str], None] | None,
    preempted: Callable[[], Notice | None] | None,
    log: Callable[[str], None],
    cache: Found,
) -> dict[str, Any]:
    began, say = time.monotonic(), log if rank == 0 else lambda line: None
    recipe = run.recipe
    steps, batch_rows, log_every = recipe.train.steps, recipe.train.rows_per_step, recipe.train.log_every_steps

    spent = goodput.Stopwatch()
    signs = goodput.SignsOfLife(f"{run.out}/goodput.jsonl") if rank == 0 else None
    attempt_id = uuid.uuid4().hex[:12]
    if signs is not None:
        signs.write(attempt=attempt_id, world_size=world_size)

    # Mesh and compiled step.
    try:
        where, mesh = mesh_here(recipe, rank=rank, world_size=world_size)
        check_batch(batch_rows, recipe.train.microbatches, where)
    except ValueError as error:
        raise TrainingStopped(str(error)) from error
    plan = plan_for(recipe, read_manifest(run.corpus))
    sources = [source.name for source in plan.sources]
    abstract = abstract_state(recipe, mesh)
    step_fn = make_train_step(recipe, mesh, num_sources=len(sources))

    # State: the newest committed checkpoint that can be read, else the beginning.
    for line in checkpoints.ignored:
        say(f"ignored {line}")
    state: Any = None
    step, window = 0, Window()
    while state is None and (commit := agreed(checkpoints, world_size)) is not None:
        check_same_run(commit.plan, run, f"checkpoint {run.checkpoints}/{commit.step}")
        try:
            state = checkpoints.restore(commit.step, abstract)
        except UnreadableCheckpoint as error:
            if world_size > 1:
                raise
            say(f"ignored: {error}")
            continue
        step, window = commit.step, Window(**commit.plan["progress"])
        if commit.plan["rows"] != step * batch_rows:
            raise TrainingStopped(
                f"checkpoint {step} stands at row {commit.plan['rows']}, expected {step * batch_rows}"
            )
        say(f"resumed from checkpoint {step}: the next plan row is {step * batch_rows}")
    if state is None and (damaged := checkpoints.damaged()):
        raise TrainingStopped(
            f"none of the {len(damaged)} checkpoints of {run.out} can be read: bring one of them back from a copy, or "
            f"remove {run.checkpoints} to begin again at step 0"
        )
    adapters = recipe.lora.rank > 0
    given = initial_params(run.init_from, recipe, mesh) if run.init_from and (state is None or adapters) else None
    if state is None:
        place = jax.tree.map(lambda leaf: leaf.sharding, abstract)
        state = jax.jit(lambda params: init_state(recipe, params), out_shardings=place)(given)
    base = frozen_base(given, recipe) if adapters else None
    del given  # or its memory would be held to the end

    # Data from the next row on, held-out rows, metrics and who else gets them.
    batches = iter(feed(step * batch_rows))
    evaluate = Evaluator(recipe, mesh, run.corpus)
    described = run.described()
    metrics_log = MetricsLog(f"{run.out}/metrics.jsonl") if rank == 0 else None
    sinks = open_sinks(recipe, run.out, metrics_log.records(), described, say) if metrics_log is not None else []
    profiler = Profiler(recipe, run.out, rank, say)
    watching.callback(profiler.close)
    for sink in sinks:
        watching.callback(sink.close)
    how = execution(recipe, mesh)
    attempt: dict[str, Any] = {
        "first_step": step, "world_size": world_size, "devices": len(jax.devices()), "attention": how.attention,
        "attention_fallback": how.fallback,
    }  # fmt: skip
    if world_size > 1:
        attempt["workers"] = all_standing(where, rank)
    kind = jax.devices()[0].device_kind
    for line in opening_lines(recipe, mesh.shape, sources, world_size, kind, kind in PEAK_FLOPS):
        say(line)
    say(f"attention: {how.attention}" + (f" ({how.fallback})" if how.fallback else ""))

    last: dict[str, Any] = {}
    saved: int | None = None
    seen_step = max(metrics_log.losses, default=0) if metrics_log is not None else 0
    replayed_steps, heeded = 0, None

    def place_in_plan() -> dict[str, Any]:
        return {"rows": step * batch_rows, **described, "progress": window.to_json()}

    def save() -> None:
        nonlocal saved
        with spent.during("checkpoint"):
            checkpoints.save(step, state, place_in_plan())
        if report is not None and saved is not None:  # the one before is committed now
            report({"step": saved, "loss": last.get("loss")}, f"{run.checkpoints}/{saved}")
        saved = step

    # Steps. A step's metrics are read once the next step has been handed to the device, which so never waits.
    pending: tuple[int, np.ndarray, Any] | None = None
    window_began, paused_s, timed_steps = time.monotonic(), 0.0, 0

    def settle() -> None:
        """Read the metrics of the step in flight; write a line where one is due."""
        nonlocal pending, window, window_began, paused_s, timed_steps, last, replayed_steps
        if pending is None:
            return
        (number, rows, on_device), pending = pending, None
        host = jax.device_get(on_device)
        skipped, again = bool(host["skipped"]), number <= seen_step
        ranges = plan.ranges_without_skips(int(rows[0]), int(rows[-1]) + 1) if skipped else []
        window.add(host, sources, ranges)
        spent.step_was("skipped" if skipped else "replayed" if again else goodput.USEFUL)
        replayed_steps += again
        timed_steps += 1
        if skipped:
            say(f"step {number}: update skipped (loss {host['loss']}, gradient norm {host['grad_norm']}), rows "
                f"{spelled(ranges)}")  # fmt: skip
        if window.skips_in_a_row >= recipe.train.max_skips_in_a_row:
            raise TrainingStopped(
                f"{window.skips_in_a_row} updates in a row were skipped (not finite, or spikes), the last at step "
                f"{number}, rows {spelled(ranges)}: lower --optimizer.peak-lr in a new --out, or leave rows out with "
                "--train.skip-rows FIRST END: here where no checkpoint has consumed them, else in a new --out"
            )
        if not (number % log_every == 0 or number == steps or evaluate.due(number)):
            return
        now = time.monotonic()
        elapsed = now - window_began - paused_s
        window.train_s += elapsed
        last = {
            "step": number, "rows": number * batch_rows, "tokens": number * recipe.tokens_per_step,
            **window.values(), "lr": float(host["lr"]),
            **{name: finite(host[name]) for name in ("grad_norm", "param_norm", "update_norm")},
            "skipped_steps": window.skipped_steps, **speeds(recipe, timed_steps, elapsed), "time_s": window.train_s,
            "first_step_s": first_step_s, "unix_s": time.time(), **memory_peaks(),
        }  # fmt: skip
        last["eta_s"] = (steps - number) * last["step_s"] if "step_s" in last else None
        if evaluate.due(number):
            with spent.during("evaluation"):
                last |= evaluate(state.params if base is None else adapted(base, state.params, recipe.lora))
        if metrics_log is not None:
            if metrics_log.write(last):
                for sink in sinks:
                    sink.write(last)
            for line in progress_lines(last, steps, saved):
                say(line)
        window, window_began, paused_s, timed_steps = window.cleared(), time.monotonic(), 0.0, 0

    first_step_s = None
    spent.switch("first_step")
    while step < steps:
        with spent.during("data"):
            batch = next(batches, None)
        if batch is None:
            raise TrainingStopped(f"the data ended at step {step} of {steps}: rebuild the corpus or train fewer steps")
        rows = np.arange(step * batch_rows, (step + 1) * batch_rows)
        check_rows(batch["row"], rows, where.share_of(rank), where.num_shares)
        profiler.before(step + 1)
        state, on_device = step_fn(state, to_devices(batch, mesh), *([] if base is None else [base]))
        settle()
        step += 1
        pending = (step, rows, on_device)
        if first_step_s is None:
            jax.block_until_ready(on_device)
            first_step_s = time.monotonic() - began
            window_began, timed_steps = time.monotonic(), -1  # compiling is not training
            spent.switch("step")
            say(f"first step after {first_step_s:.1f} s; {cache}")
        pause = time.monotonic()
        if profiler.after(step, on_device):
            paused_s += time.monotonic() - pause
        if evaluate.due(step):
            settle()  # before the next step takes the parameters' memory
        due = step % recipe.train.checkpoint_every_steps == 0 or step == steps
        if preempted is not None and step % recipe.train.preemption_every_steps == 0:
            notice = preempted()
            if notice is not None and notice != heeded:
                heeded, due = notice, True
                say(f"step {step}: {notice}; saving a checkpoint and going on")
        if due or (
            step % log_every == 0 and too_old(checkpoints.saved_at, recipe.train.checkpoint_every_s, world_size)
        ):
            settle()
            pause = time.monotonic()
            save()
            paused_s += time.monotonic() - pause
        checkpoints.poll()
        if signs is not None and (due or signs.due()):
            signs.write(attempt=attempt_id, step=step, spent=spent.so_far(), replayed_steps=replayed_steps)
    settle()
    profiler.close()
    for sink in sinks:
        sink.close()
    with spent.during("checkpoint"):
        checkpoints.wait()
    if report is not None:
        report({"step": steps, "loss": last.get("loss")}, f"{run.checkpoints}/{steps}")
    if metrics_log is not None:
        last = last or metrics_log.last  # killed after the last checkpoint, before the result

    # Result, written last: a run with it is finished.
    result = {
        "name": recipe.name, "hash": recipe.hash, "steps": steps, "rows": steps * batch_rows,
        "tokens": steps * recipe.tokens_per_step, "parameters": num_params(recipe.model), "loss": last.get("loss"),
        **{key: value for key, value in last.items() if key.startswith(("loss/", BY_KIND, BY_SOURCE))},
        "skipped_steps": window.skipped_steps, "tokens_per_s": last.get("tokens_per_s"), "train_s": window.train_s,
        "wall_s": time.monotonic() - began, "first_step_s": first_step_s, "compile_cache": vars(cache).copy(),
        **attempt, "mixture": plan.summary(),
        "corpus": fingerprint(run.corpus), "init_from": run.init_from, "checkpoint": f"{run.checkpoints}/{steps}",
        "out": run.out,
    }  # fmt: skip
    if metrics_log is not None and signs is not None:
        signs.write(attempt=attempt_id, step=step, spent=spent.so_far(), replayed_steps=replayed_steps)
        result["goodput"] = goodput.account(signs.records)
        say(goodput.described(result["goodput"]))
        result |= {"replayed_lines": metrics_log.replayed, "replays_that_differ": metrics_log.differing}
        if metrics_log.differing:
            say(f"WARNING: replayed steps came out different: {metrics_log.differing[:10]}; this resume was not exact")
        write_json(f"{run.out}/result.json", result)
    return result


def agreed(checkpoints: Checkpoints, world_size: int) -> Commit | None:
    """The newest committed checkpoint as rank 0 sees it: others may have listed the folder before it was tidied."""
    newest = checkpoints.newest()
    if world_size == 1:
        return newest
    step = int(multihost_utils.broadcast_one_to_all(np.array(newest.step if newest else -1)))
    return checkpoints.at(step) if step >= 0 else None


def check_rows(found: np.ndarray, rows: np.ndarray, part: int, num_parts: int) -> None:
    """The rows of a batch are this part of the global batch, in order; anything else is a bug in the feed."""
    share = len(rows) // num_parts
    expected = rows[part * share : (part + 1) * share]
    if not np.array_equal(found, expected):
        raise AssertionError(f"part {part} got plan rows {found.tolist()}, expected {expected.tolist()}")


def spelled(ranges: list[list[int]]) -> str:
    """``[0, 4), [8, 12)``"""
    return ", ".join(f"[{first}, {end})" for first, end in ranges)


def to_devices(batch: HostBatch, mesh: jax.sharding.Mesh) -> dict[str, jax.Array]:
    """This process's rows as part of the global batch; the row numbers stay behind."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, array) for name, array in batch.items() if name != "row"
    }


def too_old(saved_at: float, limit_s: float, world_size: int) -> bool:
    """Whether the last checkpoint is older than ``limit_s``; rank 0's clock decides for all."""
    old = time.monotonic() - saved_at >= limit_s
    return old if world_size == 1 else bool(multihost_utils.broadcast_one_to_all(np.array(old)))
