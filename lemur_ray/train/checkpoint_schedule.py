"""Decides when a run saves checkpoints, and reports each one once it is committed.

A checkpoint is due after a number of steps, after a time, and when a host is about to be preempted. Every worker of a
run makes the same calls and gets the same answers. Knows nothing of the content of a checkpoint."""

import time
from collections.abc import Callable
from typing import Any

from lemur_ray.config import TrainConfig
from lemur_ray.train.checkpoint import Checkpoints
from lemur_ray.train.run.attempt import RunAttempt
from lemur_ray.train.run.coordination import SaveAgreement

Notice = str
"""Text of a preemption notice, for a person; a new text is a new notice."""
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
        agreement: SaveAgreement | None = None,
        report: Report | None = None,
        preempted: Callable[[], Notice | None] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """agreement: shared by the processes of a run; None for a process alone. report: called for every committed
        checkpoint. preempted: returns a preemption notice or None; called on rank 0 every ``preemption_every_steps``
        steps. say: logs a line."""
        self.saved: int | None = None
        """Step of the newest checkpoint that a save was begun for; None before the first."""
        self._checkpoints, self._config, self._attempt = checkpoints, config, attempt
        self._agreement, self._report, self._preempted, self._say = agreement, report, preempted, say
        self._last_notice: Notice | None = None

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due after ``step``; to be called once after every step. With several processes a
        notice or the elapsed time, which rank 0 watches, makes the same later step due on all of them."""
        if (agreement := self._agreement) is None:
            reason = self._reason(step)
        else:
            if agreement.takes_request and (requested := self._reason(step)) is not None:
                agreement.request(requested)
            reason = agreement.reached(step)
        if reason:
            self._say(f"step {step}: {reason}; saving a checkpoint and going on")
        return reason is not None or step % self._config.checkpoint_every_steps == 0 or step == self._config.steps

    def _reason(self, step: int) -> str | None:
        """A new preemption notice, or "" if the last checkpoint is too old, else None."""
        config = self._config
        if self._preempted is not None and step % config.preemption_every_steps == 0:
            notice = self._preempted()
            if notice is not None and notice != self._last_notice:
                self._last_notice = notice
                return notice
        old = time.monotonic() - self._checkpoints.saved_at >= config.checkpoint_every_s
        return "" if old and step % config.log_every_steps == 0 else None

    def save(self, step: int, state: Any, content: dict[str, Any], loss: float | None = None) -> None:
        """Begin to save ``state`` after ``step``; returns once the arrays are copied, and the previous checkpoint is
        committed and reported. content: the checkpoint's JSON object; its field ``rows``, the number of plan rows read,
        is required. loss: for the report, in nats per token."""
        with self._attempt.spent.during("checkpoint"):
            self._checkpoints.save(step, state, content)
        if self.saved is not None:
            self._report_commit(self.saved, loss)
        self.saved = step

    def finish(self, step: int, loss: float | None = None) -> None:
        """Wait until the last checkpoint, of ``step``, is committed, and report it. loss: for the report."""
        with self._attempt.spent.during("checkpoint"):
            self._checkpoints.wait()
        self._report_commit(step, loss)

    def _report_commit(self, step: int, loss: float | None) -> None:
        if self._report is not None:
            self._report({"step": step, "loss": loss}, self._checkpoints.path(step))
