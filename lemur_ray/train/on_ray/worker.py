"""The function that runs in every Ray Train worker: the training loop, fed from Ray Data and reporting to Ray Train.

A reason that no restart can remove is written to ``stopped.json`` for the driver. Knows nothing of restarts."""

import contextlib
import logging
import os
import sys
import time
from typing import Any

import ray
import ray.train
from ray.train.v2._internal.execution.context import get_train_context

from lemur_ray.train.on_ray.restarts import group_fence
from lemur_ray.train.on_ray.rows import stream_with_stall_reports
from lemur_ray.train.on_ray.worker_environment import adopt_driver_folders
from lemur_ray.train.pod.slices import RunShape, split_batch
from lemur_ray.train.run.fence import Fence, Superseded
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped, lock, read_object

WATCHES_PREEMPTION = "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"
"""Environment variable of Ray Train; "0" if no preemption watcher runs."""
_LOCK_WAIT_S = 120.0
"""Seconds to wait for the worker of a killed driver that is still ending."""


def run_worker(config: dict[str, Any]) -> None:
    """Train on this Ray Train worker to the end of the run. config: ``run`` (Run) and ``shapes`` (number of workers ->
    RunShape). An error that no restart can remove is written to ``stopped.json`` in the run folder, and is raised only
    if there are several workers; others are raised, so that Ray Train restarts the group."""
    adopt_driver_folders()
    from lemur_ray.train import loop

    run, fence = config["run"], group_fence()
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    where: RunShape = config["shapes"][world_size]
    share = split_batch(run.recipe.train, where).rows // where.num_shares
    if world_size > 1 and stop_reason(fence) is not None:
        return  # this group was started only to end the wait of the others
    logging.getLogger("absl").setLevel(logging.CRITICAL)  # orbax logs a traceback of each error that it raises, too
    for name in ("orbax", "ray.data", "ray.train", "ray.train.v2._internal.execution.context"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("ray.data._internal.progress").setLevel(logging.ERROR)  # warns that progress bars are off

    def feed(row: int) -> Any:
        # PlanFeed was configured after the checkpoint was chosen, so the stream begins at the same row.
        return stream_with_stall_reports(
            lambda: ray.train.get_dataset_shard("train").iter_batches(batch_size=share, prefetch_batches=2), _log
        )

    try:
        with lock(run.out, f"rank{rank}", wait_s=_LOCK_WAIT_S):
            preempted = _preemption_notice if os.environ.get(WATCHES_PREEMPTION) != "0" else None
            loop.train(run, feed, loop.Worker(rank, world_size, _report_commit, preempted, _log, fence))
    except Superseded as error:
        _log(str(error))
        if world_size > 1:
            raise error.with_traceback(None) from None  # which ends the others, who may wait in a collective
    except (TrainingStopped, RunFolderError, ValueError) as error:  # a ValueError is about the recipe: no use to retry
        if world_size > 1 and isinstance(error, ValueError):
            raise  # among several workers it may as well be a collective that one of them has left
        _record_stop(fence, error, world_size)
        if world_size > 1:
            raise  # the others may wait in a collective: the group is ended, and this is why (``run.failures``)


def stop_reason(fence: Fence) -> str | None:
    """The reason in ``stopped.json`` why the run cannot go on; None if no worker of this driver wrote one. fence: that
    of the driver."""
    try:
        stopped = read_object(f"{fence.out}/stopped.json")
    except FileNotFoundError:
        return None
    return str(stopped["error"]) if stopped.get("attempt", 0) >= fence.driver else None


def _record_stop(fence: Fence, error: Exception, world_size: int) -> None:
    with contextlib.suppress(Superseded):
        try:
            fence.write_json("stopped.json", {"error": str(error)})
        except OSError as full:  # a disk too full for a checkpoint may be too full for the reason
            if world_size == 1:
                raise TrainingStopped(f"{error} (and the reason could not be written: {full})") from error


def _report_commit(metrics: dict[str, Any], checkpoint: str) -> None:
    """Report metrics alone to Ray Train: its list of checkpoints would be a file that two drivers may write."""
    ray.train.report(metrics)


def _preemption_notice() -> str | None:
    # What Ray Train's watcher has noted in this worker; the public ray.train.get_preemption_info waits for all workers.
    info = get_train_context().preemption_context.preemption_info
    if info is None:
        return None
    until = time.strftime(" at %H:%M:%S", time.localtime(info.deadline_ms / 1000)) if info.deadline_ms else " soon"
    return f"the hosts of workers {info.preempted_ranks} are taken away{until}"


def _log(line: str) -> None:
    sys.stdout.write(f"{line}\n")  # print is patched by Ray Train and would show every line twice
    sys.stdout.flush()
