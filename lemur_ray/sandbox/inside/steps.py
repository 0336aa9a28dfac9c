"""Runs one step inside a sandbox: watches a program or a session until it ends or exceeds a limit.

Output is forwarded to the harness as it arrives. Time, output and memory are checked here so that a limit takes effect
at once; the harness has a clock and a byte count of its own as a second line of defence."""

import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lemur_ray.sandbox.inside import processes, wire
from lemur_ray.sandbox.inside.starvation import LOOK_S, CpuMeter, owed_s
from lemur_ray.sandbox.inside.wire import Pipe

CHUNK = 65536
WATCH_S = 0.05
IDLE_WATCH_S = 0.25
"""Seconds between two memory checks, within a step and between steps, if no cgroup limits memory."""
GRACE_S = 0.02
"""Seconds to wait for output of processes that a program left running."""
SHELL_GRACE_S = 0.5
"""Seconds that a session has to report after its children were killed."""


@dataclass
class SessionProcess:
    """The process of a session, and this side's ends of its pipes: output, errors, reports, orders (file descriptors).
    ``name``: (pid, start time), which no later process shares; ``held``: an incomplete last line of its reports."""

    pid: int
    name: tuple[int, int]
    out: int
    err: int
    report: int
    orders: int
    held: bytes = b""

    def close(self) -> None:
        for fd in (self.out, self.err, self.report, self.orders):
            os.close(fd)


@dataclass
class Step:
    """One step in progress: a program that runs to its end, or a message that a session handles. Holds the limits, and
    what ``Watcher`` has measured so far."""

    out: int
    err: int
    """Read ends of the pipes for the program's stdout (``out``) and stderr (file descriptors)."""
    deadline: float
    """Monotonic seconds at which the step times out; later for a starved step."""
    kill_at: int
    """Bytes of output, both streams together, beyond which the step ends."""
    memory_bytes: int | None
    """Limit of the summed memory, checked by ``Watcher``; None if a cgroup enforces it."""
    main: int = -1
    """Pid of the program, or of the session's process."""
    live: SessionProcess | None = None
    """The session that handles the message; None for a program."""
    nonce: bytes = b""
    """Random text that marks the session's report on this message."""
    pending: bytes = b""
    """The part of the message that the session has not read yet."""
    produced: int = 0
    """Bytes of output so far."""
    reason: str = ""
    """Limit that ended the step: "time" or "output"; empty if none did."""
    finished: bool = False
    status: int | None = None
    """Wait status of ``main``; None while it runs."""
    reported: int | None = None
    """Status that the session reported; None if it has not."""
    time_s: float = 0.0
    """The original time limit in seconds."""
    patience_s: float = 0.0
    """Seconds by which the deadline of a starved step may still be extended."""
    allowed_cpu_s: float | None = None
    """Processor seconds that a step gets before it counts as not starved; None: see ``starvation.owed_s``."""
    meter: CpuMeter | None = None
    cpu_s: float = 0.0
    """Processor seconds of ``main``, once it is collected."""
    dead: list[tuple[int, float]] = field(default_factory=list)
    """(wait status, CPU seconds) of other collected children: orphans are reparented to the first process."""
    memory_kills: int = 0
    """Number of processes killed for exceeding the memory limit."""
    open: set[int] = field(default_factory=set)
    """Those of ``out`` and ``err`` that are not closed yet."""


class Watcher:
    """Watches steps, one at a time. ``pipe``: channel to the harness; ``wakeup``: descriptor that becomes readable when
    a child has died; ``proc``: path of a /proc; ``collected``: called with reaped children; ``own_network``:
    False if the sandbox shares the host's network."""

    def __init__(
        self, pipe: Pipe, wakeup: int, proc: str, collected: Callable[[processes.Ended], None], own_network: bool
    ):
        self.pipe, self.wakeup, self.proc, self._collected = pipe, wakeup, proc, collected
        self.own_network = own_network

    def watch(self, step: Step) -> None:
        """Forward output to the harness until the program ends, the session reports that the message is handled, or a
        limit is exceeded; the outcome is written into ``step``. Kills the largest process whenever memory exceeds the
        limit, but does not end the step's other processes."""
        poller = select.poll()
        step.open = {step.out, step.err}
        for fd in (step.out, step.err, self.wakeup, self.pipe.read_fd):
            poller.register(fd, select.POLLIN)
        if step.live:
            poller.register(step.live.report, select.POLLIN)
            poller.register(step.live.orders, select.POLLOUT)
        self._collect(step)
        while not step.finished:
            now = time.monotonic()
            if now >= step.deadline:
                if self._waits_longer(step, now):
                    continue
                step.reason, step.finished = "time", True
                break
            wait_s = min(step.deadline - now, LOOK_S if step.memory_bytes is None else WATCH_S)
            if step.meter:
                step.meter.look()
            for fd, _ in poller.poll(wait_s * 1000 + 1):
                if fd in step.open:
                    if not self._forward(step, fd):
                        poller.unregister(fd)
                elif fd == self.wakeup:
                    self._collect(step)
                elif fd == self.pipe.read_fd:
                    self._order(step)
                elif step.live and fd == step.live.report:
                    if not self._report(step):
                        poller.unregister(fd)
                elif step.live and fd == step.live.orders and not self._send_message(step):
                    poller.unregister(fd)
            if step.produced > step.kill_at and not step.finished:
                step.reason, step.finished = "output", True
            if step.memory_bytes is not None:
                step.memory_kills += processes.kill_heaviest(self.proc, step.memory_bytes, self.own_network)

    def _waits_longer(self, step: Step, now: float) -> bool:
        """Extend the deadline of a starved step if its patience allows. Returns whether it was extended."""
        if step.patience_s <= 0 or step.meter is None:
            return False
        owed = owed_s(step.meter.measurements(), step.time_s, step.allowed_cpu_s)
        if owed <= 0.0:
            return False
        more = min(step.patience_s, owed + 0.01, 0.2 * step.time_s + 0.1)
        step.patience_s -= more + now - step.deadline
        step.deadline = now + more
        return True

    def settle(self, step: Step, until: Callable[[], bool], timeout_s: float) -> bool:
        """Forward output and reap children until ``until()`` is true; False if it is not within ``timeout_s`` s."""
        deadline = time.monotonic() + timeout_s
        reports = [step.live.report] if step.live else []
        while not until():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for fd in select.select([self.wakeup, *step.open, *reports], [], [], min(left, WATCH_S))[0]:
                if fd in step.open:
                    self._forward(step, fd)
                elif fd in reports and not self._report(step):
                    reports = []
            self._collect(step)
        return True

    def drain(self, step: Step, grace_s: float) -> None:
        """Forward output that is already in the pipes, and what arrives within ``grace_s`` seconds."""
        deadline = time.monotonic() + grace_s
        bound = step.produced + 2**20
        while step.open and step.produced < bound:
            ready = select.select(list(step.open), [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                return
            for fd in ready:
                self._forward(step, fd)

    def _forward(self, step: Step, fd: int) -> bool:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return True
        if not data:
            step.open.discard(fd)
            return False
        step.produced += len(data)
        self.pipe.send(wire.STDOUT if fd == step.out else wire.STDERR, data)
        return True

    def _collect(self, step: Step) -> None:
        while select.select([self.wakeup], [], [], 0)[0]:
            os.read(self.wakeup, 4096)
        self.record_exits(step, processes.collect())

    def record_exits(self, step: Step, ended: processes.Ended) -> None:
        """Store the exit statuses of reaped children (pid -> wait status, CPU seconds) in ``step``; if its main process
        is one of them, the step is finished."""
        self._collected(ended)
        step.dead += [how for pid, how in ended.items() if pid != step.main]
        if step.main in ended:
            step.status, step.cpu_s = ended[step.main]
            step.finished = True

    def _order(self, step: Step) -> None:
        """Input from the harness during a step is no order: raise EOFError if it has ended, else WireError."""
        raise wire.WireError(f"an order in the middle of a step: {self.pipe.receive_json()}")

    def _report(self, step: Step) -> bool:
        assert step.live
        data = os.read(step.live.report, CHUNK)
        if not data:
            return False
        step.produced += len(data)  # an honest report is one short line; more counts against the output limit
        lines = (step.live.held + data).split(b"\n")
        step.live.held = lines.pop()[-4096:]
        for line in lines:
            nonce, _, status = line.partition(b" ")
            if nonce == step.nonce and step.reported is None:
                step.reported = int(status) if status.lstrip(b"-").isdigit() else 0
                step.finished = True
        return True

    def _send_message(self, step: Step) -> bool:
        """Write more of the message; False once it is complete or the reader is gone."""
        assert step.live
        try:
            step.pending = step.pending[os.write(step.live.orders, step.pending[:CHUNK]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return bool(step.pending)
