"""Profiler traces of a few steps, requested in the recipe or during the run by ``touch <run>/profile``.

Traces are written to ``<run>/profiles/step-N`` in the layout of TensorBoard's and XProf's profile page. An error is
logged once and never ends a run. Knows nothing of what a step computes."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import jax

from lemur_ray.config import Recipe
from lemur_ray.storage.file_system import file_system

REQUEST = "profile"
"""File in the run folder that requests a trace from the next step on; it may hold the number of steps."""
FOLDER = "profiles"


def _options() -> jax.profiler.ProfileOptions:
    """Profiler options: trace devices and XLA, but not Python calls.
    For Python calls XLA sets a hook in the state of every thread, including half-initialised ones: if a thread of Ray
    or tensorstore first calls Python at that moment, the process crashes with a segmentation fault (Python 3.11)."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    return options


class Profiler:
    """Records the profiler traces of one worker: call ``before`` and ``after`` around every step. Errors are logged
    once and end the profiling, never the run. recipe: its ``watch`` options say which steps and ranks."""

    def __init__(
        self, recipe: Recipe, out: str, rank: int, say: Callable[[str], None], check: Callable[[], None] = lambda: None
    ) -> None:
        """out: run folder. say: logs a line. check: called before a trace is uploaded; raises if a newer attempt has
        taken the run over."""
        self._watch, self._out, self._rank, self._say, self._check = recipe.watch, out, rank, say, check
        self._mine = rank == 0 or self._watch.profile_ranks == "all"
        self._fs, self._inner = file_system(out)
        # A request to a bucket takes as long as a step: there only steps that log check for a request.
        self._check_every = recipe.train.log_every_steps if "://" in out else 1
        self._first, self._end, self._folder, self._request_seen = 0, 0, "", False

    def before(self, step: int) -> None:
        """Begin a trace if one is due at ``step`` (from 1), which is about to be dispatched to the device."""
        if not self._mine or self._end:
            return
        try:
            num_steps = self._steps_requested(step)
            if num_steps:
                self._folder = tempfile.mkdtemp(prefix="trace-") if "://" in self._out else f"{self._out}/{FOLDER}"
                if "://" not in self._out:
                    self._folder += f"/step-{step}"
                self._first, self._end = step, step + num_steps - 1
                jax.profiler.start_trace(self._folder, profiler_options=_options())
        except Exception as error:  # a profiler that is busy or missing is no reason to stop training
            self._give_up(error)

    def after(self, step: int, results: Any) -> bool:
        """End the trace if ``step`` was its last step, once ``results``, arrays of that step, are ready. Returns
        whether it ended."""
        if not self._end or step < self._end:
            return False
        self.close(results)
        return True

    def close(self, results: Any = None) -> None:
        """End an open trace, if any, once the arrays ``results`` are ready, and upload it for a run in a bucket."""
        if not self._end:
            return
        try:
            jax.block_until_ready(results)
            jax.profiler.stop_trace()
            where = f"{self._out}/{FOLDER}/step-{self._first}"
            if "://" in self._out:
                self._check()
                fs, inner = file_system(where)
                fs.put(f"{self._folder}/", inner, recursive=True)
                shutil.rmtree(self._folder, ignore_errors=True)
            self._say(f"profiled steps {self._first} to {self._end}: {where}")
        except Exception as error:
            self._give_up(error)
        self._end = 0
        if self._rank == 0 and self._request_seen:
            with contextlib.suppress(Exception):  # a request that cannot be removed counts as answered
                if self._fs.exists(f"{self._inner}/{REQUEST}"):  # so that it can be made again
                    self._fs.rm_file(f"{self._inner}/{REQUEST}")
                self._request_seen = False

    def _steps_requested(self, step: int) -> int:
        """Number of steps of the trace that begins at ``step``; 0 without one."""
        if step == self._watch.profile_first_step:
            return self._watch.profile_steps
        if step % self._check_every:
            return 0
        exists = self._fs.exists(f"{self._inner}/{REQUEST}")
        is_new, self._request_seen = exists and not self._request_seen, exists
        if not is_new:
            return 0
        text = self._fs.cat_file(f"{self._inner}/{REQUEST}").decode(errors="replace").strip()
        return int(text) if text.isdecimal() and int(text) > 0 else self._watch.profile_steps

    def _give_up(self, error: Exception) -> None:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        self._say(f"no profiler trace at step {self._first or '?'} ({first}); the run goes on")
        self._end, self._mine = 0, False
