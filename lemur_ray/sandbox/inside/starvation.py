"""Measures whether a step that ran out of time was slow, asleep, or starved of processor time by the machine.

A step's own time is the time it ran or slept; time in which it was ready to run but had no processor is the machine's
fault. The larger of two measures counts: the kernel's count of run-queue time per thread (exact, lost with the thread),
and samples of which processes are ready (coarse, but also right for crowds of short-lived processes)."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lemur_ray.sandbox.inside import processes

LOOK_S = 0.25
"""Seconds between two samples of the ready processes."""
_QUARTER = 0.25
"""Share of a step's wall time: with this much processor time it was not starved, unless more was promised."""


class CpuMeter:
    """Measures the processor time of a step, from construction on. ``proc``: path of a /proc; ``main``: pid of the
    step's first process; ``crowd``: returns all processes of the step; ``cpu_s``: returns their CPU seconds so far;
    ``clock``: monotonic seconds."""

    def __init__(
        self,
        proc: str,
        main: int,
        crowd: Callable[[], Iterable[processes.Process]],
        cpu_s: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proc, self._main, self._crowd, self._cpu_s, self._clock = proc, main, crowd, cpu_s, clock
        self._began = self._looked = clock()
        self._before, self._ours_before = processes.waited_s(proc, main), processes.own_waited_s()
        self._by_clock_s = self._ready_s = 0.0

    def look(self) -> None:
        """Sample which processes are ready to run, unless the last sample is less than LOOK_S (0.25 s) old."""
        now = self._clock()
        if now - self._looked < LOOK_S:
            return
        crowd = list(self._crowd())
        if any(process.is_ready for process in crowd):
            self._ready_s += now - self._looked
        self._looked = now
        self._read(crowd)

    def measurements(self) -> dict[str, Any]:
        """Seconds since construction as a dict: ``elapsed_s``, ``crowd_cpu_s`` (processor time of running processes),
        ``waited_s`` (ready, but without a processor). The functions ``starved`` and ``owed_s`` expect it."""
        self._read(list(self._crowd()))
        elapsed_s, cpu_s = self._clock() - self._began, self._cpu_s()
        waited_s = min(elapsed_s, max(self._by_clock_s, self._ready_s - cpu_s))
        # It may have slept while it waited for this process, which waited for a processor.
        asleep_s = max(0.0, elapsed_s - waited_s - cpu_s)
        waited_s += min(asleep_s, processes.own_waited_s() - self._ours_before)
        return {"elapsed_s": elapsed_s, "crowd_cpu_s": cpu_s, "waited_s": waited_s}

    def _read(self, crowd: Iterable[processes.Process]) -> None:
        """Update the run-queue time: of the main process, and of one other process that it may wait for."""
        waited = {process.pid: processes.waited_s(self._proc, process.pid) for process in crowd}
        own = max(0.0, waited.pop(self._main, 0.0) - self._before)
        self._by_clock_s = max(self._by_clock_s, own + max(waited.values(), default=0.0))


def owed_s(measured: Mapping[str, Any], time_s: float, cpu_s: float | None) -> float:
    """Further seconds that a step must get so that it has had ``time_s`` seconds without waiting for a processor. 0 if
    it has used ``cpu_s`` seconds of processor time (None: a quarter of ``time_s``). ``measured``: from
    ``CpuMeter.measurements``."""
    used_s = max(float(measured.get(name, 0.0)) for name in ("cpu_s", "crowd_cpu_s"))  # ended processes, running ones
    if used_s >= (_QUARTER * time_s if cpu_s is None else cpu_s):
        return 0.0
    waited_s = float(measured.get("waited_s", 0.0))
    return max(0.0, time_s + waited_s - float(measured.get("elapsed_s", time_s)))


def starved(measured: Mapping[str, Any], time_s: float, cpu_s: float | None = None) -> bool:
    """Whether a step ran out of its ``time_s`` seconds because the machine gave it no processor: it waited for one more
    than half of that time, and ``owed_s`` of the same arguments is positive."""
    return float(measured.get("waited_s", 0.0)) > 0.5 * time_s and owed_s(measured, time_s, cpu_s) > 0.0
