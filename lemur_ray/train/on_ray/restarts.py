"""Why the workers of a run are started again, said to a person; and the end of a run where that would not help.

Sits in Ray Train's controller. Knows nothing of what the workers do; what their failures mean is ``run.failures``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ray.train.v2.api.callback import UserCallback
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError

from lemur_ray.train.run.failures import Failures, short
from lemur_ray.train.run.folder import TrainingStopped


class Restarts(UserCallback):
    """Tells a person why the workers are started again, and ends the run where that would not help.

    Ray Train's own line is a page of traceback, and it counts failures without looking at them.
    """

    def __init__(self, newest: Callable[[], int], failures: Failures | None = None) -> None:
        """newest: the step of the newest commit."""
        self._newest, self._failures = newest, failures or Failures()

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        ranks: dict[str, list[int]] = {}
        for rank, error in sorted(worker_exceptions.items()):
            ranks.setdefault(short(error), []).append(rank)
        for said, (first, *others) in ranks.items():  # a bucket that is away is so for all of them
            more = f" and {len(others)} more" if others else ""
            sys.stdout.write(f"worker {first}{more} failed: {said}\n")
        sys.stdout.flush()
        if (why := self._failures.last_word(worker_exceptions, self._newest)) is not None:
            raise ControllerError(TrainingStopped(why))  # the one error that Ray Train does not try again


def cause(error: TrainingFailedError) -> str:
    """What the workers of a run that has failed for good said last."""
    failures = getattr(error, "worker_failures", {})
    return "; ".join(f"worker {rank}: {short(e)}" for rank, e in sorted(failures.items())) or short(error)
