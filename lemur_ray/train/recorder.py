"""Records training steps in ``metrics.jsonl``, the metrics sinks, the console and the goodput record.

Metrics of a step are read after the next step has been dispatched, so that the device never waits. Works for any
training loop that uses ``step``. Knows nothing of the loop, of data and of checkpoints."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from lemur_ray.config import Recipe
from lemur_ray.train.evaluate import BY_KIND, BY_SOURCE
from lemur_ray.train.metrics import MetricsLog, Window, finite
from lemur_ray.train.run.attempt import RunAttempt
from lemur_ray.train.run.console import Console
from lemur_ray.train.run.folder import TrainingStopped
from lemur_ray.train.run.goodput import USEFUL
from lemur_ray.train.run.sinks import open_sinks
from lemur_ray.train.run.speed import memory_peaks, speeds

Ranges = list[list[int]]
"""Half-open row ranges in the numbering of ``train.skip_rows``."""


class Recorder:
    """Records a start of a run on one worker: call ``took`` after dispatching a step, ``settle`` before the next."""

    def __init__(
        self,
        recipe: Recipe,
        out: str,
        attempt: RunAttempt,
        *,
        sources: Sequence[str] = (),
        progress: Mapping[str, Any] | None = None,
        about: Mapping[str, Any] | None = None,
        primary: bool = True,
        say: Callable[[str], None] = print,
    ) -> None:
        """out: run folder. sources: name of each source index of a batch. progress: what ``progress()`` returned for
        the restored checkpoint. about: description of the run for sinks. primary: this worker (rank 0) writes files."""
        self._recipe, self._attempt, self._sources, self._say = recipe, attempt, sources, say
        self.window = Window(**(progress or {}))
        self.log = MetricsLog(f"{out}/metrics.jsonl", attempt.check) if primary else None
        self._logged_step = max(self.log.losses, default=0) if self.log is not None else 0
        self._sinks = (
            [] if self.log is None else open_sinks(recipe, out, self.log.records(), about or {}, say, attempt.check)
        )
        self._console = Console(say, recipe.train.steps)
        self.last: dict[str, Any] = {}
        """The newest line of this attempt."""
        self.first_step_s: float | None = None
        """Seconds from the start of the attempt to the end of its first step."""
        self.saved: int | None = None
        """Step of the last checkpoint, for console lines; set by the code that saves."""
        self._pending: tuple[int, Any, Callable[[], Ranges]] | None = None
        self._since, self._paused_s, self._timed_steps = time.monotonic(), 0.0, 0

    @property
    def loss(self) -> float | None:
        """Loss of the newest line in nats per token, None without one."""
        return self.last.get("loss")

    def progress(self) -> dict[str, Any]:
        """JSON object to store in a checkpoint, so that a resumed run writes the same lines as an uninterrupted one."""
        return self.window.to_json()

    def took(self, step: int, metrics: Any, rows: Callable[[], Ranges] = list) -> bool:
        """Note the dispatch of ``step`` (from 1). Returns whether it is the attempt's first, and if so waits for it.
        metrics: of ``train_step``, on the device. rows: returns the step's row ranges; called only if it is skipped."""
        self._pending = (step, metrics, rows)
        if self.first_step_s is not None:
            return False
        jax.block_until_ready(metrics)
        self.first_step_s = time.monotonic() - self._attempt.began
        self._since, self._timed_steps = time.monotonic(), -1  # compiling is not training
        self._attempt.spent.switch("step")
        return True

    @contextlib.contextmanager
    def pausing(self) -> Iterator[None]:
        """Context manager whose time does not count in the training speed."""
        began = time.monotonic()
        yield
        self._paused_s += time.monotonic() - began

    def settle(self, measure: Callable[[], Mapping[str, Any]] | None = None) -> None:
        """Read the metrics of the dispatched step, if any, and write a line if one is due.
        measure: evaluates the state after this step and returns values for the line, which is then always due. Raises
        TrainingStopped after too many skipped updates in a row."""
        if self._pending is None:
            return
        (number, on_device, rows), self._pending = self._pending, None
        train, attempt, window = self._recipe.train, self._attempt, self.window
        host = jax.device_get(on_device)
        skipped, again = bool(host["skipped"]), number <= self._logged_step
        ranges = rows() if skipped else []
        window.add(host, self._sources, ranges)
        attempt.spent.step_was("skipped" if skipped else "replayed" if again else USEFUL)
        attempt.replayed_steps += again
        self._timed_steps += 1
        named = f", rows {spelled(ranges)}" if ranges else ""
        if skipped:
            self._say(f"step {number}: update skipped (loss {host['loss']}, gradient norm {host['grad_norm']}){named}")
        if window.skips_in_a_row >= train.max_skips_in_a_row:
            raise TrainingStopped(
                f"{window.skips_in_a_row} updates in a row were skipped (not finite, or spikes), the last at step "
                f"{number}{named}: lower --optimizer.peak-lr in a new --out, or leave rows out with "
                "--train.skip-rows FIRST END: here where no checkpoint has consumed them, else in a new --out"
            )
        if number % train.log_every_steps == 0 or number == train.steps or measure is not None:
            self._write(number, host, measure)

    def _write(self, number: int, host: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]] | None) -> None:
        recipe, window = self._recipe, self.window
        elapsed = time.monotonic() - self._since - self._paused_s
        window.train_s += elapsed
        line = {
            "step": number, "rows": number * recipe.train.rows_per_step, "tokens": number * recipe.tokens_per_step,
            **window.values(), "lr": float(host["lr"]),
            **{name: finite(host[name]) for name in ("grad_norm", "param_norm", "update_norm")},
            "skipped_steps": window.skipped_steps, **speeds(recipe, self._timed_steps, elapsed),
            "time_s": window.train_s, "first_step_s": self.first_step_s, "unix_s": time.time(), **memory_peaks(),
        }  # fmt: skip
        line["eta_s"] = (recipe.train.steps - number) * line["step_s"] if "step_s" in line else None
        if measure is not None:
            with self._attempt.spent.during("evaluation"):
                line |= measure()
        self.last = line
        if self.log is not None:
            if self.log.write(line):
                for sink in self._sinks:
                    sink.write(line)
            self._console.tell(line, self.saved)
        self.window, self._since, self._paused_s, self._timed_steps = window.cleared(), time.monotonic(), 0.0, 0

    def flush(self) -> None:
        """Wait until every line of ``metrics.jsonl`` is stored; other workers than the primary one do nothing. Raises
        what the attempt's ``check`` raises, OSError."""
        if self.log is not None:
            self.log.flush()

    def close(self) -> None:
        """Close the sinks once they have written their lines (up to 60 s each), and store the metrics; errors are
        ignored. May be called again."""
        for sink in self._sinks:
            sink.close()
        if self.log is not None:
            with contextlib.suppress(OSError, TrainingStopped):  # ``flush`` raises it
                self.log.close()

    def summary(self) -> dict[str, Any]:
        """Last losses (``loss`` in nats per token, also by kind and source) and totals of the run, for ``result.json``:
        skipped steps, tokens/s, seconds. ``loss`` and ``tokens_per_s`` are None if no step was logged."""
        last = self.last
        if not last and self.log is not None:
            last = self.log.last  # the run was killed between last checkpoint and result
        return {
            "loss": last.get("loss"),
            **{key: value for key, value in last.items() if key.startswith(("loss/", BY_KIND, BY_SOURCE))},
            "skipped_steps": self.window.skipped_steps, "tokens_per_s": last.get("tokens_per_s"),
            "train_s": self.window.train_s, "wall_s": time.monotonic() - self._attempt.began,
            "first_step_s": self.first_step_s,
        }  # fmt: skip


def spelled(ranges: Ranges) -> str:
    """Row ranges as text: ``[0, 4), [8, 12)``; "" for none."""
    return ", ".join(f"[{first}, {end})" for first, end in ranges)
