"""Restart policy of a run: logs why workers restart, and ends the run if another restart would not help.

Runs in Ray Train's controller. Knows nothing of what the workers do; ``run.failures`` classifies their errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from ray.train.v2.api.callback import UserCallback
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError

from lemur_ray.train.run.failures import Failures, short
from lemur_ray.train.run.fence import Superseded
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
        if (
            not isinstance(error, TrainingStopped | RunFolderError)
            and len(lines := str(error).strip().splitlines()) > 1
        ):
            return "".join(f"  | {line}\n" for line in (f"worker {rank}:", *lines))
    return ""
