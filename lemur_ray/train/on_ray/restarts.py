"""Ray Train callbacks of a run: its restart policy, and an attempt number (``run.fence``) for each worker group.

They run in Ray Train's controller. Know nothing of what the workers do; ``run.failures`` classifies their errors."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2.api.callback import UserCallback
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError

from lemur_ray.train.run.failures import Failures, short
from lemur_ray.train.run.fence import Fence, Superseded
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped


class Restarts(UserCallback):
    """Ray Train callback that prints a line per distinct worker error, and ends a run whose restart would not help."""

    def __init__(self, newest: Callable[[], int], failures: Failures | None = None) -> None:
        """newest: returns the step of the newest committed checkpoint, 0 without one. failures: counts so far."""
        self._newest, self._failures = newest, failures or Failures()

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        for error in worker_exceptions.values():
            if isinstance(error, Superseded):
                raise ControllerError(error)  # the worker has logged it
        ranks: dict[str, list[int]] = {}
        for rank, error in sorted(worker_exceptions.items()):
            ranks.setdefault(short(error), []).append(rank)
        for message, (first, *others) in ranks.items():  # a bucket outage, for example, hits all workers
            more = f" and {len(others)} more" if others else ""
            sys.stdout.write(f"worker {first}{more} failed: {message}\n")
        sys.stdout.flush()
        if (why := self._failures.stop_reason(worker_exceptions, self._newest)) is not None:
            sys.stdout.write(worker_traceback(worker_exceptions))
            sys.stdout.flush()
            raise ControllerError(TrainingStopped(why))  # the only error that Ray Train does not retry


def cause(error: TrainingFailedError) -> str:
    """Last line of each failed worker's error when Ray Train has given up; that of ``error`` if it names no worker."""
    failures = getattr(error, "worker_failures", {})
    return "; ".join(f"worker {rank}: {short(e)}" for rank, e in sorted(failures.items())) or short(error)


def worker_traceback(errors: Mapping[int, BaseException]) -> str:
    """Traceback of the first worker (rank -> error) that has one, as indented lines; "" if none has. The indentation
    keeps the lines on the terminal: ``cluster.ray_output`` sends other tracebacks to a log."""
    for rank, error in sorted(errors.items()):
        lines = str(error).strip().splitlines()
        if len(lines) > 1 and not isinstance(error, TrainingStopped | RunFolderError):
            return "".join(f"  | {line}\n" for line in (f"worker {rank}:", *lines))
    return ""


_FENCES: list[Fence] = []
"""In a worker process: the fence of its group, once it has been handed over."""


class GroupAttempts(WorkerGroupCallback):
    """Ray Train callback: the first worker group writes under its driver's attempt number, each later group under a new
    one."""

    def __init__(self, fence: Fence, environment: Mapping[str, str]) -> None:
        """fence: of the driver's attempt. environment: the driver's bucket settings, which Ray Train's controller
        lacks."""
        self._fence, self._environment, self._used = fence.for_group(), environment, False

    def before_worker_group_start(self, worker_group_context: Any) -> None:
        """Take the group's attempt number, and set ``environment`` where it is not set. Raises ControllerError, which
        Ray Train does not retry, if another driver took the run over."""
        for name, value in self._environment.items():
            os.environ.setdefault(name, value)
        try:
            if self._used:
                self._fence = Fence(self._fence.out, after=self._fence)
        except Superseded as error:
            raise ControllerError(error) from error
        self._used = True

    def after_worker_group_start(self, worker_group: Any) -> None:
        worker_group.execute(_receive, self._fence)


def _receive(fence: Fence) -> None:
    _FENCES[:] = [fence]


def group_fence() -> Fence:
    """Fence (right to write to the run folder) of the worker group that this process belongs to. Raises IndexError in a
    process that got none from the callback GroupAttempts."""
    return _FENCES[0]
