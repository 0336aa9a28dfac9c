"""Runs the project's own programs in a sandbox and exchanges JSON with them: one order in, one line of answer back.

Programs are modules of ``inside/payload`` with a function ``serve``; their answers are untrusted data. Knows nothing of
the content of orders and answers."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from lemur_ray.sandbox import exec_slots
from lemur_ray.sandbox.inside import payload
from lemur_ray.sandbox.sandbox import Blame, ExecResult, Limits, Sandbox, SandboxDestroyed, Session
from lemur_ray.sandbox.untrusted_output import Bounds, UntrustedData, untrusted_json

# The source arrives on descriptor 9, so no file of it exists in the sandbox. It imports from the system alone:
# folders that the policy can write to join the path only after all of it is loaded.
START = """
import sys
own = [path for path in sys.path if not path]
sys.path[:] = [path for path in sys.path if path]
import os, site
def take(n):
    b = b""
    while len(b) < n: b += os.read(9, n - len(b))
    return b
def load(name):
    import types
    module = types.ModuleType(name)
    exec(compile(take(int.from_bytes(take(4), "big")), f"<lemur {{name}}>", "exec"), module.__dict__)
    return module
*others, last = [load(name) for name in {names}]
sys.path[:0] = own
sys.path += [path for path in [site.getusersitepackages()] if os.path.isdir(path)]
last.serve(*others)
"""
OPTIONS = ("-u", "-s")
"""Options of the interpreter: no file in the policy's home affects its start."""
ANSWER = Bounds(2**20, nodes=100_000, depth=250)
"""Bounds of one answer: a list of 30,000 numbers fits, and dozens of episodes may send as much at once."""
_BEYOND_BYTES = 2**16


class Failure(StrEnum):
    """Why a program gave no answer. The value is its text in notes and reports."""

    TIMED_OUT = "timed out"
    ENDED = "ended"
    NO_ANSWER = "no answer"
    """Its output is not one JSON object within the bounds."""


@dataclass(frozen=True)
class Reply:
    """Answer of a program: a JSON object, or None with the ``failure`` and whose fault it is (``blame``), if known."""

    message: Mapping[str, Any] | None
    failure: Failure | None = None
    blame: Blame | None = None


class Program:
    """A program of the project, the module ``name`` of ``inside/payload``, that runs in ``sandbox``. ``cpu_s``,
    ``wall_s`` and ``waited_s`` (the part of wall time spent waiting for a processor) are sums in seconds over all
    exchanges. Its own time is wall time less waiting. A program that used it up timed out by its own fault; one that
    used up its patience before, with less processor time than ``allowed_cpu_s``, was starved."""

    def __init__(
        self,
        sandbox: Sandbox,
        name: str,
        *,
        time_s: float,
        total_s: float = math.inf,
        patience_s: float = 0.0,
        allowed_cpu_s: float | None = None,
        env: Mapping[str, str] | None = None,
        python: str = "python3",
    ) -> None:
        """Start it. ``time_s``, ``total_s``: seconds of its own time (see the class) for one exchange, and for all of
        them, the start included. ``patience_s``: further seconds that all together may last while it waits for a
        processor. ``allowed_cpu_s``: processor seconds, over all exchanges, after which it gets no patience and a
        time-out is its own fault; None: a quarter of ``time_s``. ``env``: further environment variables. ``python``:
        interpreter in the sandbox. Raises SandboxDestroyed, blamed on the machine, if it does not start, since no code
        of the policy has run."""
        self._total_s, self._patience_s = total_s, patience_s
        self._allowed_cpu_s = 0.25 * time_s if allowed_cpu_s is None else allowed_cpu_s
        self.cpu_s = self.wall_s = self.waited_s = 0.0
        self._limits = replace(
            sandbox.spec.limits,
            time_s=time_s,
            patience_s=patience_s,
            output_bytes=ANSWER.size_bytes + _BEYOND_BYTES,
            kill_at_bytes=ANSWER.size_bytes + _BEYOND_BYTES,
        )
        names = ("plain_values", "channel", name)
        self._session: Session | None
        limits = self._left()
        self._session, loaded = start(
            sandbox, names, limits, python=python, env={"OPENBLAS_NUM_THREADS": "1", **(env or {})}
        )
        self._account(loaded, limits)
        if self._session is None:
            reason = loaded.note or loaded.err[-200:] or "it ended"
            raise SandboxDestroyed(f"the program {name} did not start: {reason}", "infra")

    def exchange(self, order: Mapping[str, Any]) -> Reply:
        """Send an order and wait for the answer. Never raises for what the program does: a time-out, its end, or an
        answer that is no JSON object of at most 1 MiB is the ``failure`` of the reply. After a time-out or its end it
        is closed, and each further order fails with ``Failure.ENDED``."""
        if self._session is None:
            return Reply(None, Failure.ENDED)
        if self._own_s >= self._total_s or self.wall_s >= self._total_s + self._patience_s:
            self.close()
            return Reply(None, Failure.TIMED_OUT, self._late())
        limits = self._left()
        result = self._session.step(framed(order), limits)
        self._account(result, limits)
        if result.timed_out:
            return Reply(None, Failure.TIMED_OUT, self._late(result))
        if self._session is None:
            return Reply(None, Failure.ENDED, result.blame)
        try:
            message = untrusted_json(result.stdout.rstrip(b"\n").rpartition(b"\n")[2], ANSWER)
        except UntrustedData as error:
            return Reply(None, Failure.NO_ANSWER, error.blame)
        return Reply(message) if isinstance(message, dict) else Reply(None, Failure.NO_ANSWER, "policy")

    def close(self) -> None:
        """End the program; idempotent."""
        if self._session:
            self._session.close()
            self._session = None

    @property
    def _own_s(self) -> float:
        return self.wall_s - self.waited_s

    def _left(self) -> Limits:
        """Limits of the next exchange."""
        own_s = min(self._limits.time_s, max(0.1, self._total_s - self._own_s))
        return replace(
            self._limits,
            time_s=own_s,
            patience_s=max(0.0, self._patience_s - self.waited_s),
            cpu_s=max(0.0, self._allowed_cpu_s - self.cpu_s),
        )

    def _late(self, last: ExecResult | None = None) -> Blame:
        """Who is to blame for a time-out. ``last``: the exchange that timed out."""
        if last and (last.blame == "infra" or last.wall_s - last.waited_s >= self._limits.time_s):
            return last.blame or "policy"
        has_slept = self._own_s >= self._total_s or self.waited_s <= 0.5 * min(self._limits.time_s, self._total_s)
        return "policy" if has_slept or self.cpu_s >= self._allowed_cpu_s else "infra"

    def _account(self, result: ExecResult, limits: Limits) -> None:
        self.cpu_s += result.cpu_s
        self.wall_s += result.wall_s
        self.waited_s += result.waited_s
        # The time beyond its limit is counted as lost anyway.
        exec_slots.add_lost_time(max(0.0, result.waited_s - max(0.0, result.wall_s - limits.time_s)))
        if not result.alive or result.session_ended or result.timed_out:
            self.close()


def start(
    sandbox: Sandbox,
    names: Sequence[str],
    limits: Limits,
    *,
    python: str = "python3",
    env: Mapping[str, str] | None = None,
) -> tuple[Session, ExecResult]:
    """Start ``python`` in ``sandbox`` with modules of ``inside/payload``, by name; the last one's ``serve`` is called
    with the others. Loading them is one step within ``limits``. Returns the session and that step's result. ``env``:
    further environment variables."""
    session = sandbox.session([python, *OPTIONS, "-c", START.format(names=tuple(names))], env=env)
    texts = [Path(payload.__file__).with_name(f"{name}.py").read_bytes() for name in names]
    return session, session.step(b"".join(len(text).to_bytes(4, "big") + text for text in texts), limits)


def framed(message: Mapping[str, Any]) -> bytes:
    """Encode a message for a program in a sandbox (``inside/payload/channel.py``): four bytes of length, then JSON."""
    data = json.dumps(message).encode("utf-8", "replace")
    return len(data).to_bytes(4, "big") + data
