"""Runs training on a Ray cluster: the training loop under Ray Train's JaxTrainer, with rows from Ray Data.

Pretraining and instruction tuning are the same run on different corpora. Knows nothing of what a step computes."""

import contextlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import ray
import ray.data
import ray.train
from ray.exceptions import RayActorError
from ray.train.v2.api.config import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError
from ray.train.v2.jax import JaxConfig, JaxTrainer

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.config.config_file import CONFIG_FILE
from lemur_ray.corpus.manifest import read_manifest
from lemur_ray.plan.feed import PlanFeed
from lemur_ray.plan.plan import plan_for
from lemur_ray.recipes import with_vocabulary
from lemur_ray.storage.file_system import arrow_file_system, bucket_environment, file_system
from lemur_ray.train.on_ray.restarts import GroupAttempts, Restarts, cause, worker_traceback
from lemur_ray.train.on_ray.shared_storage_check import hosts_without_storage, unshared_storage_message
from lemur_ray.train.on_ray.worker import WATCHES_PREEMPTION, run_worker, stop_reason
from lemur_ray.train.on_ray.worker_environment import worker_env
from lemur_ray.train.pod.placement import check_recipe
from lemur_ray.train.pod.slices import RunShape, Slice, split_batch
from lemur_ray.train.run.failures import WorkersLost, short
from lemur_ray.train.run.fence import Fence, Superseded
from lemur_ray.train.run.folder import (
    Run,
    RunFolderError,
    TrainingStopped,
    check_same_run,
    check_writable,
    lock,
    prepare,
    read_object,
)
from lemur_ray.train.run.goodput import SignsOfLife
from lemur_ray.train.run.lease import lease
from lemur_ray.train.run.needs import check_rows, check_tokenizer
from lemur_ray.train.run.sinks import check_sinks
from lemur_ray.train.run.stage import staged
from lemur_ray.weights.checkpoints import Commit, newest_commit

RAY_FOLDER = ".ray"
"""Subfolder of a run's folder for Ray Train's own files, one per attempt in it; removed when the driver ends."""


def train(
    recipe: Recipe,
    *,
    corpus: str,
    out: str,
    init_from: str = "",
    resume_from: str = "",
    keep_step: bool = True,
    keep_guard: bool = True,
    configuration: str = "",
) -> dict[str, Any]:
    """Train a recipe on a corpus folder into the run folder ``out`` (absolute), on the Ray cluster of this process.
    init_from: run folder, checkpoint or model folder whose parameters start the run, with a fresh optimizer. A folder
    with a committed checkpoint of the same run is resumed; a finished one is returned with ``already_finished``.
    resume_from, keep_step, keep_guard: another run whose train state this one continues, see ``run.stage.staged``.
    configuration: text of the run's file ``config.yaml``; empty: none.
    Returns the content of ``result.json``. Raises RunFolderError if ``out`` holds another run, is written by another
    process or is not writable; PlanError, CorpusError, ValueError if recipe, corpus, hosts, chips and mesh do not fit
    together; TrainingStopped with the reason and what to do."""
    manifest = read_manifest(corpus)
    recipe = with_vocabulary(recipe, manifest["vocab_size"])
    shapes = {where.num_workers: where for where in check_recipe(recipe)}
    run = Run(recipe, corpus, out, init_from)
    if resume_from:
        run = staged(run, resume_from, keep_step=keep_step, keep_guard=keep_guard)
    plan = plan_for(run.planned, manifest)
    check_sinks(recipe.watch.sinks, out)
    check_tokenizer(corpus, init_from)
    if recipe.mesh.use_gpu:
        check_rows(run.planned, corpus)
    check_writable(out)
    if blind := hosts_without_storage(run):
        raise RunFolderError(unshared_storage_message(run, blind))
    with lock(out, "run"), lease(out) as fence:
        if (finished := prepare(run, fence.write)) is not None:
            return {**finished, "already_finished": True}
        if (commit := newest_commit(run.checkpoints)) is not None:
            check_same_run(commit.plan, run, f"checkpoint {commit.folder}")
        if configuration:
            fence.write(CONFIG_FILE, configuration.encode())
        signs = SignsOfLife(f"{out}/goodput.jsonl", check=fence.check)
        signs.write(submit=True)
        signs.close()
        start = partial(next_row, run.checkpoints, bucket_environment(), run.row_after(run.first_step))
        feed = PlanFeed(plan, corpus, recipe.train.rows_per_step, start, partial(_share, recipe, shapes))
        try:
            with fence.explaining_errors():
                return _fit(run, shapes, feed, fence)
        finally:
            with contextlib.suppress(OSError, Superseded):
                fence.check()
                _remove(f"{out}/{RAY_FOLDER}")


def _fit(run: Run, shapes: dict[int, RunShape], feed: PlanFeed, fence: Fence) -> dict[str, Any]:
    recipe, out = run.recipe, run.out
    files, inner = arrow_file_system(f"{out}/{RAY_FOLDER}")
    trainer = _Trainer(
        run_worker,
        train_loop_config={"run": run, "shapes": shapes},
        jax_config=jax_config(recipe.mesh),
        scaling_config=scaling_config(recipe.mesh),
        datasets={"train": partial(ray.data.range, 1)},  # placeholder: PlanFeed makes the datasets
        dataset_config=feed,  # type: ignore[arg-type]  # annotated as a dict, checked as a DataConfig
        run_config=RunConfig(
            name=f"{out.rstrip('/').rpartition('/')[2]}-{fence.number:06d}",
            storage_path=inner,
            storage_filesystem=files,  # Ray's own bucket client would use other endpoints and credentials
            failure_config=FailureConfig(max_failures=_max_failures(recipe), max_preemption_failures=-1),
            worker_runtime_env={"env_vars": worker_env(recipe.mesh)},
            logging_config=LoggingConfig(log_level="WARNING"),
            callbacks=[
                Restarts(partial(newest_step, run.checkpoints, bucket_environment())),
                GroupAttempts(fence, bucket_environment()),  # type: ignore[list-item]  # takes every kind of callback
            ],
        ),
    )
    try:
        with _environment(ray_train_settings(recipe.mesh)):
            trainer.fit()
        fence.check()  # workers that were overtaken have just ended
    except ControllerError as error:
        if isinstance(error.controller_failure, TrainingStopped):
            raise error.controller_failure from error
        raise WorkersLost(
            f"what starts the workers failed: {short(error)}; run the same command again to resume"
        ) from error
    except RayActorError as error:
        if (why := stop_reason(fence)) is not None:
            raise TrainingStopped(why) from error
        raise WorkersLost("the process that starts the workers died; run the same command again to resume") from error
    except TrainingFailedError as error:
        if (why := stop_reason(fence)) is not None:
            raise TrainingStopped(why) from error
        sys.stderr.write(worker_traceback(getattr(error, "worker_failures", {})))
        raise WorkersLost(
            f"the workers failed more than {_max_failures(recipe)} times, the last time with: {cause(error)}; "
            "run the same command again to resume"
        ) from error
    try:
        return read_object(f"{out}/result.json")
    except FileNotFoundError:
        raise TrainingStopped(stop_reason(fence) or "the workers ended without a result") from None


def _remove(folder: str) -> None:
    fs, inner = file_system(folder)
    if fs.exists(inner):
        fs.rm(inner, recursive=True)


class _Trainer(JaxTrainer):
    """JaxTrainer that omits the placement group cleaner if there is no dashboard. The cleaner polls the dashboard for
    the state of the controller and would warn every second; Ray removes the placement group of a dead controller by
    itself."""

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        if ray._private.worker.get_dashboard_url():
            return callbacks
        return [callback for callback in callbacks if type(callback).__name__ != "PlacementGroupCleanerCallback"]


def next_row(checkpoints: str, environment: dict[str, str] | None = None, first_row: int = 0) -> int:
    """The first plan row that no committed checkpoint has consumed; ``first_row`` without a checkpoint.
    environment: bucket settings of the driver; Ray Train's controller, which calls this, does not inherit them.
    checkpoints: folder or URL of a run's checkpoints."""
    commit = _newest(checkpoints, environment)
    return int(commit.plan["rows"]) if commit else first_row


def newest_step(checkpoints: str, environment: dict[str, str] | None = None) -> int:
    """Step of the newest committed checkpoint in the folder ``checkpoints``, 0 without one. environment: bucket
    settings of the driver."""
    commit = _newest(checkpoints, environment)
    return commit.step if commit else 0


def _newest(checkpoints: str, environment: dict[str, str] | None) -> Commit | None:
    for name, value in (environment or {}).items():
        os.environ.setdefault(name, value)
    return newest_commit(checkpoints)


def _max_failures(recipe: Recipe) -> int:
    """Restarts allowed in a run: ``max_failures`` per host (3 x 64 hosts: one every second hour for 16 days)."""
    return recipe.train.max_failures * recipe.mesh.num_workers


def _share(recipe: Recipe, shapes: dict[int, RunShape], rank: int, world_size: int) -> tuple[int, int, int]:
    """Index of the part of each batch that a rank reads, the number of parts, and rows of a batch with padding."""
    where = shapes[world_size]
    return where.share_of(rank), where.num_shares, split_batch(recipe.train, where).rows


def scaling_config(mesh: MeshConfig) -> ScalingConfig:
    """Workers and resources to reserve from Ray; the number is a (min, max) pair for an elastic run."""
    num_workers = (mesh.min_workers, mesh.num_workers) if mesh.min_workers else mesh.num_workers
    if mesh.use_tpu:
        one = Slice.of(mesh.accelerator_type, mesh.topology)
        return ScalingConfig(
            use_tpu=True, num_workers=num_workers, topology=one.topology,
            accelerator_type=one.generation.accelerator_type, elastic_resize_monitor_interval_s=mesh.resize_check_s,
        )  # fmt: skip
    return ScalingConfig(
        num_workers=num_workers, elastic_resize_monitor_interval_s=mesh.resize_check_s, use_gpu=mesh.use_gpu,
        resources_per_worker={"CPU": mesh.cpus_per_worker, **({"GPU": 1} if mesh.use_gpu else {})},
    )  # fmt: skip


def ray_train_settings(mesh: MeshConfig) -> dict[str, str]:
    """Default environment variables of Ray Train's controller for a mesh: name -> value.
    It waits 30 s for hosts if the run is elastic (``min_workers`` set), else 600 s. The user's variables win."""
    # After a loss an elastic run first requests all its former hosts: Ray's count of them is up to 20 s old, and a dead
    # host is noticed later than its worker. Ray counts again when this wait is over. Other runs can only wait.
    wait_for_hosts_s = 30 if mesh.min_workers else 600
    settings = {
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(wait_for_hosts_s),
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",  # also how long the end of a run may go unnoticed
    }
    if mesh.num_workers == 1 and not mesh.use_tpu and not mesh.use_gpu:
        settings[WATCHES_PREEMPTION] = "0"  # one process less; a local worker is never preempted
    return settings


@contextlib.contextmanager
def _environment(defaults: dict[str, str]) -> Iterator[None]:
    """Temporarily set environment variables that are not already set."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def jax_config(mesh: MeshConfig) -> JaxConfig:
    """Ray's jax.distributed set-up. On CPU Ray starts jax.distributed (on gloo) only if ``use_tpu`` is set."""
    distributed_cpu = not mesh.use_gpu and mesh.num_workers > 1
    return JaxConfig(use_tpu=mesh.use_tpu or distributed_cpu, use_gpu=mesh.use_gpu)
