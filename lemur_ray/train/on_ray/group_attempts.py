"""Ray Train callback that gives each worker group its own attempt number (``run.fence``).

The number is taken before the group looks for the newest checkpoint, so no earlier group can commit after that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2.api.exceptions import ControllerError

from lemur_ray.train.run.fence import Fence, Superseded

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
