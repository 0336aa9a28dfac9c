"""Schedule of a run's checkpoints, and reports of committed ones.

A checkpoint is due after a number of steps, after a time, and when a host is about to be preempted. Every worker of a
run makes the same calls and gets the same answer. Knows nothing of the content of a checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.experimental import multihost_utils

from lemur_ray.config import TrainConfig
from lemur_ray.train.checkpoint import Checkpoints
from lemur_ray.train.run.attempt import RunAttempt

Notice = str
"""Preemption notice for a person. Two notices are the same if their texts are equal."""
Report = Callable[[dict[str, Any], str], None]
"""Called with (metrics, checkpoint folder) for every committed checkpoint, on every rank."""


class CheckpointSchedule:
    """The checkpoints of one start of a run; each is saved in the background while training continues."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        config: TrainConfig,
        attempt: RunAttempt,
        *,
        world_size: int = 1,
        report: Report | None = None,
        preempted: Callable[[], Notice | None] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """preempted: called every ``preemption_every_steps`` steps; gives all ranks the same notice, or None."""
        self.saved: int | None = None
        """Step of the last checkpoint begun."""
        self._checkpoints, self._config, self._attempt = checkpoints, config, attempt
        self._world_size, self._report, self._preempted, self._say = world_size, report, preempted, say
        self._last_notice: Notice | None = None

    def due(self, step: int) -> bool:
        config = self._config
        due = step % config.checkpoint_every_steps == 0 or step == config.steps
        if self._preempted is not None and step % config.preemption_every_steps == 0:
            notice = self._preempted()
            if notice is not None and notice != self._last_notice:
                self._last_notice, due = notice, True
                self._say(f"step {step}: {notice}; saving a checkpoint and going on")
        return due or (
            step % config.log_every_steps == 0
            and too_old(self._checkpoints.saved_at, config.checkpoint_every_s, self._world_size)
        )

    def save(self, step: int, state: Any, beside: dict[str, Any], loss: float | None = None) -> None:
        """Begin a save; returns once the arrays are copied, with the previous checkpoint committed and reported.

        beside: the checkpoint's JSON item; ``rows``, the number of rows trained on, is required.
        """
        with self._attempt.spent.during("checkpoint"):
            self._checkpoints.save(step, state, beside)
        if self.saved is not None:
            self._report_commit(self.saved, loss)
        self.saved = step

    def finish(self, step: int, loss: float | None = None) -> None:
        """Wait until the last checkpoint, of ``step``, is committed, and report it."""
        with self._attempt.spent.during("checkpoint"):
            self._checkpoints.wait()
        self._report_commit(step, loss)

    def _report_commit(self, step: int, loss: float | None) -> None:
        if self._report is not None:
            self._report({"step": step, "loss": loss}, self._checkpoints.path(step))


def too_old(saved_at: float, limit_s: float, world_size: int) -> bool:
    """Whether the last checkpoint is older than ``limit_s``; rank 0's clock decides for all."""
    old = time.monotonic() - saved_at >= limit_s
    return old if world_size == 1 else bool(multihost_utils.broadcast_one_to_all(np.array(old)))
