"""A nemesis: faults drawn from a seed that strike a run in a bucket, while its command is run again until it succeeds.

A fault strikes at a given share of the writes of the undisturbed run, inside the request that completes it, so that the
seed determines where in the run it strikes. Knows the processes of a command by their roles, and nothing of training.
"""

from __future__ import annotations

import math
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from lemur_ray.host.exit_codes import ExitCode
from tests.faults.history import TEST, Write
from tests.faults.ray_command import RayCommand
from tests.faults.service_faults import Entrance
from tests.faults.training_command import Command, send
from tests.storage.bucket_server import Service

MOST_COMMANDS = 8
LONGEST_S = 900.0
"""Of one run with all its faults, on a machine that has little time for it."""
_HELD_S = 6.0
"""A process stays stopped, an entrance cut off, and a service in error for at most so long. Clients wait longer and
longer between two tries: 60 errors alone, one after another, would last for minutes."""


@dataclass(frozen=True)
class Fault:
    """One event of a schedule."""

    kind: str
    """stop, kill, cut, errors or expired."""
    at: float
    """Share of the writes of the undisturbed run after which it strikes."""
    role: str = ""
    """Of the process that it strikes: driver, controller, worker, or host for all."""
    writes: int = 0
    """Further writes by others until a process goes on or an entrance is mended."""
    another: bool = False
    """Whether the same command is run meanwhile, as on another host."""
    status: int = 503
    times: int = 0
    """Maximum number of requests answered with an error."""


@dataclass(frozen=True)
class Schedule:
    """Everything that a seed determines."""

    seed: int
    faults: tuple[Fault, ...]
    clocks_s: tuple[float, ...]
    """How far the clock of each successive command is ahead."""
    linger_s: float
    """How long workers outlive their driver."""
    rate_limited: bool
    """One write a second of an object."""
    late_listings: bool
    """Listings show a change after 6 s."""


def draw(seed: int) -> Schedule:
    """The schedule of a seed."""
    chance = random.Random(seed)
    faults = []
    for at in sorted(round(chance.uniform(0.02, 1.0), 3) for _ in range(chance.randint(2, 4))):
        kind = chance.choice(("stop",) * 4 + ("kill",) * 3 + ("cut",) * 2 + ("errors",) * 2 + ("expired",))
        role = chance.choice(("driver", "controller", "worker", "worker", "host"))
        another = (kind == "cut" or role != "worker") and chance.random() < 0.7
        faults.append(
            Fault(kind, at, role, chance.choice((1, 5, 20, 10**6)), another, chance.choice((503, 503, 429, 500)),
                  chance.choice((3, 20, 60)))
        )  # fmt: skip
    clocks = tuple(chance.choice((-300.0, 0.0, 300.0)) for _ in range(MOST_COMMANDS + 1))
    linger_s = chance.choice((0.0, 0.5, 2.0))
    return Schedule(seed, tuple(faults), clocks, linger_s, chance.random() < 0.3, chance.random() < 0.3)


@dataclass
class _Held:
    """What undoes a fault, and when."""

    undo: Callable[[], None]
    at_write: float
    at_s: float


@dataclass
class Nemesis:
    """Runs a command under a schedule. start: starts it with an entrance and a clock."""

    service: Service
    schedule: Schedule
    start: Callable[[Entrance, float], Command | RayCommand]
    num_writes: int
    """Writes of the undisturbed run, renewals of its lease apart."""
    commands: list[Command | RayCommand] = field(default_factory=list)
    struck: list[str] = field(default_factory=list)
    """Faults that struck, with the write at which they did."""
    _count: int = 0
    _running: list[Command | RayCommand] = field(default_factory=list)
    _entrances: list[Entrance] = field(default_factory=list)
    _held: list[_Held] = field(default_factory=list)
    _another: bool = False
    _expired: bool = False

    def run(self) -> None:
        """Until a command has succeeded and all others have ended. Raises AssertionError."""
        pending = list(self.schedule.faults)

        def watch(write: Write) -> None:
            if not write.accepted or write.client == TEST or write.name.endswith(".run.lease"):
                return
            self._count += 1
            while pending and self._count >= pending[0].at * self.num_writes:
                self._strike(pending.pop(0), write)

        objects = self.service.objects
        objects.history.watch = watch
        objects.write_interval_s = 1.0 if self.schedule.rate_limited else 0.0
        objects.listing_delay_s = 6.0 if self.schedule.late_listings else 0.0
        deadline = time.monotonic() + LONGEST_S
        succeeded = False
        self._begin()
        while self._running:
            assert time.monotonic() < deadline, f"no end within {LONGEST_S:g} s"
            self._undo(everything=succeeded)
            for command in [one for one in self._running if one.exit_code() is not None]:
                self._running.remove(command)
                succeeded |= command.exit_code() == 0
                self._judge(command)
            if not succeeded and (self._another or not self._running):
                self._another = False
                self._begin()
            time.sleep(0.005)
        objects.history.watch = None
        self._undo(everything=True)
        assert succeeded

    def _begin(self) -> None:
        assert len(self.commands) < MOST_COMMANDS, f"{MOST_COMMANDS} commands have not finished the run"
        entrance = self.service.entrance(f"command {len(self.commands) + 1}")
        self._entrances.append(entrance)
        self.commands.append(self.start(entrance, self.schedule.clocks_s[len(self.commands)]))
        self._running.append(self.commands[-1])

    def _judge(self, command: Command | RayCommand) -> None:
        code = command.exit_code()
        if code in (0, -signal.SIGKILL):
            return
        if self._expired:  # a person logs in again
            self._expired = False
            self.service.troubles.clear()
            return
        assert code not in (ExitCode.NEEDS_PERSON, ExitCode.USAGE), (
            f"exit code {code} asks for a person:\n{command.output()[-2000:]}"
        )

    def _strike(self, fault: Fault, write: Write) -> None:
        """In the thread of the request: the last command that runs is struck."""
        if not self._running:
            return
        self.struck.append(f"{fault.kind} {fault.role} at {write.name} (write {self._count} of {self.num_writes})")
        command, entrance = self._running[-1], self._entrances[self.commands.index(self._running[-1])]
        if fault.kind == "errors":
            trouble = self.service.trouble(match=".", status=fault.status, times=fault.times)
            self._held.append(_Held(partial(setattr, trouble, "times", 0), math.inf, time.monotonic() + _HELD_S))
            return
        if fault.kind == "expired":
            self._expired = True
            self.service.trouble(match=".", status=401, times=10**9)
            return
        self._another |= fault.another
        undo = entrance.mend
        if fault.kind == "cut":
            entrance.cut()
        else:
            pids = command.pids(fault.role)
            send(signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP, pids)
            undo = partial(send, signal.SIGCONT, pids)
        self._held.append(_Held(undo, self._count + fault.writes, time.monotonic() + _HELD_S))

    def _undo(self, *, everything: bool = False) -> None:
        for held in list(self._held):
            if everything or self._count >= held.at_write or time.monotonic() >= held.at_s:
                self._held.remove(held)
                held.undo()
