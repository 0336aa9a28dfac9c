"""A program of ours that lives in a sandbox and is spoken with: one JSON message in, one JSON line back.

Programs are modules of ``inside`` with a ``serve``; what they say is data, never trusted further than that. Knows no
orders and no answers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lemur_ray.sandbox import inside
from lemur_ray.sandbox.python_repl import OPTIONS, START_TEXT
from lemur_ray.sandbox.sandbox import Blame, ExecResult, Sandbox, Session

SAID_BYTES = 16 * 2**20
"""Of one answer; more is no answer."""


@dataclass(frozen=True)
class Heard:
    """What came back: an object, or why there is none (``timed out``, ``ended``, ``no answer``)."""

    said: Mapping[str, Any] | None
    failure: str = ""
    blame: Blame | None = None


class Program:
    """A running program. ``cpu_s`` and ``wall_s`` add up over all exchanges."""

    def __init__(
        self,
        sandbox: Sandbox,
        name: str,
        *,
        time_s: float,
        total_s: float = math.inf,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """``time_s``: wall time of one exchange; ``total_s``: of all, after which the next one has timed out."""
        self._total_s = total_s
        self.cpu_s = self.wall_s = 0.0
        self._limits = replace(
            sandbox.spec.limits, time_s=time_s, output_bytes=2 * SAID_BYTES, kill_at_bytes=2 * SAID_BYTES
        )
        names = ("plain", "channel", name)
        argv = ["python3", *OPTIONS, "-c", START_TEXT.format(names=names)]
        self._session: Session | None = sandbox.session(argv, env={"OPENBLAS_NUM_THREADS": "1", **(env or {})})
        self._started = self._step(_texts(names))

    def exchange(self, message: Mapping[str, Any]) -> Heard:
        """Say something and wait for the answer. A program that ended or was late takes no more messages."""
        if self._session is None:
            return Heard(None, "ended")
        if self.wall_s >= self._total_s:
            self.close()
            return Heard(None, "timed out", "policy")
        data = json.dumps(message).encode("utf-8", "replace")
        result = self._step(len(data).to_bytes(4, "big") + data)
        if result.timed_out:
            return Heard(None, "timed out", result.blame)
        if self._session is None:
            return Heard(None, "ended", result.blame)
        try:
            said = json.loads(result.stdout.splitlines()[-1])
        except (ValueError, IndexError, RecursionError):
            return Heard(None, "no answer")
        return Heard(said) if isinstance(said, dict) else Heard(None, "no answer")

    def close(self) -> None:
        """End it; idempotent."""
        if self._session:
            self._session.close()
            self._session = None

    def _left_s(self) -> float:
        return min(self._limits.time_s, max(0.1, self._total_s - self.wall_s))

    def _step(self, data: bytes) -> ExecResult:
        assert self._session
        result = self._session.step(data, replace(self._limits, time_s=self._left_s()))
        self.cpu_s += result.cpu_s
        self.wall_s += result.wall_s
        if not result.alive or "session ended" in result.note or result.timed_out:
            self.close()
        return result


def _texts(names: Sequence[str]) -> bytes:
    """The texts of a program's modules, each behind its length."""
    folder = Path(inside.__file__).parent
    texts = [(folder / f"{name}.py").read_bytes() for name in names]
    return b"".join(len(text).to_bytes(4, "big") + text for text in texts)
