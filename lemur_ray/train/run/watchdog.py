"""Step watchdog: ends a worker process whose step hangs, as a collective does for ever when a host is lost.

Ray Train reacts to the dead worker and restarts the group at the newest commit. Knows nothing of jax and of Ray."""

import contextlib
import faulthandler
import os
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator

from lemur_ray.host.exit_codes import ExitCode

MIN_LIMIT_S = 1800.0
"""Default minimum, in seconds, of the time limit on evaluation, compilation, checkpoint, wait for data and step."""
PATIENCE = "LEMUR_STEP_PATIENCE_S"
"""Environment variable that replaces MIN_LIMIT_S, in seconds."""
SLOWEST_STEP_FACTOR = 20.0
"""Smallest limit as a multiple of the slowest step, or of the median step once KNOWN_AFTER steps are timed."""
MIN_STEP_LIMIT_S = 600.0
"""Smallest limit in seconds on a step alone, once KNOWN_AFTER steps are timed."""
KNOWN_AFTER = 20
"""Number of timed steps after which their median is used."""
EXIT_CODE = ExitCode.TRY_AGAIN
"""Exit code of the ended process."""


def least_s() -> float:
    """The environment variable PATIENCE in seconds, else MIN_LIMIT_S. Raises ValueError for an invalid value."""
    given = os.environ.get(PATIENCE) or str(MIN_LIMIT_S)
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{PATIENCE} is {given!r}: expected seconds above 0")
    return seconds


class StepWatchdog:
    """A context that ends this process, with EXIT_CODE and its threads' stacks on stderr, if ``step_ended`` is not
    called within ``limit_s``. The limit is the larger of ``least_s`` and 20 times the slowest step; after
    ``KNOWN_AFTER`` steps and outside of ``patient`` it is the larger of ``step_s`` and 20 times their median. The time
    before the first step counts from the start of the context. Does nothing if ``watches`` is False."""

    def __init__(self, *, watches: bool = True, least_s: float = MIN_LIMIT_S, step_s: float = MIN_STEP_LIMIT_S) -> None:
        self._least_s, self._step_s, self._slowest_s = least_s, min(step_s, least_s), 0.0
        self._at = self._ended_at = time.monotonic()
        self._steps: deque[float] = deque(maxlen=4 * KNOWN_AFTER)
        self._patient = False
        self._step = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="step-watchdog", daemon=True) if watches else None

    @property
    def limit_s(self) -> float:
        """Current limit in seconds since the last sign of life."""
        longest_s = max(self._least_s, SLOWEST_STEP_FACTOR * self._slowest_s)
        if self._patient or len(self._steps) < KNOWN_AFTER:
            return longest_s
        return min(longest_s, max(self._step_s, SLOWEST_STEP_FACTOR * statistics.median(self._steps)))

    def step_ended(self, step: int) -> None:
        """Note that step number ``step``, with its checkpoint and evaluation, has ended."""
        now = time.monotonic()
        if self._step:  # the first one is compiled
            self._slowest_s = max(self._slowest_s, now - self._ended_at)
            self._steps.append(now - self._at)
        self._step, self._at, self._ended_at = step, now, now

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        """A context for work of unknown duration outside a step; its end counts as a sign of life."""
        self._patient = True
        try:
            yield
        finally:
            self._at, self._patient = time.monotonic(), False

    def __enter__(self) -> "StepWatchdog":
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(min(10.0, self._least_s / 10)):
            limit_s = self.limit_s
            if (silent_s := time.monotonic() - self._at) > limit_s:
                sys.stderr.write(
                    f"no step has ended for {silent_s:.0f} s after step {self._step} (limit {limit_s:.0f} s): "
                    "another host is probably gone and a collective waits for it. This worker ends, so that all start "
                    "again from the newest checkpoint. Where its threads stand:\n"
                )
                sys.stderr.flush()
                faulthandler.dump_traceback()
                os._exit(EXIT_CODE)
