"""A Python program in a process of its own that answers JSON lines, with limits of time and memory: both of its ends.

For code of installed or fetched packages. The program imports this module, which imports nothing else of the project.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

START_S = 120.0
"""Time limit of the first answer, which waits for imports, in seconds"""
MEMORY_BYTES = 2 * 2**30
"""Limit of the address space of the process"""
_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""Environment variables that the process gets: it needs no keys"""
BUSY_S = 3.0
"""Processor time, in seconds, that blames a time-out on the request: other answers take milliseconds of it"""
Blame = Literal["policy", "infra"]


class ProcessEnded(Exception):
    """Raised if the process did not answer within the time limit, or ended. ``blame``: ``infra`` if the machine killed
    it, or if it wanted to run and got less than ``BUSY_S`` of processor time; else ``policy``."""

    def __init__(self, message: str, blame: Blame = "policy") -> None:
        super().__init__(message)
        self.blame = blame


class JsonProcess:
    """Starts a Python program and asks it for answers. ``program``: a Python file that calls ``open_channel``; it can
    import what this process can. ``name``: what the program does, for messages."""

    def __init__(self, program: str, name: str) -> None:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _VARIABLES if name in os.environ} | {"PYTHONPATH": paths},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        self._name, self._unread = name, b""
        self._end: ProcessEnded | None = None

    def ask(self, request: Any, time_s: float) -> Any:
        """The program's answer to a JSON value. ``time_s``: limit for request and answer, longer than ``BUSY_S``.
        Raises ProcessEnded; the process is killed then, and later calls raise it again."""
        if self._end is not None:
            raise self._end
        until, (_, before) = time.monotonic() + time_s, self._state()
        try:
            unsent = memoryview(json.dumps(request).encode() + b"\n")
            while unsent or b"\n" not in self._unread:
                inputs = [self._input] if unsent else []
                readable, writable, _ = select.select([self._output], inputs, [], max(0.0, until - time.monotonic()))
                if not readable and not writable:
                    waits, used = self._state()
                    starved = not waits and used - before < BUSY_S
                    raise self._over(f"did not answer within {time_s:g} s", "infra" if starved else "policy")
                if writable:
                    unsent = unsent[os.write(self._input, unsent) :]
                if readable:
                    if not (part := os.read(self._output, 2**20)):
                        raise self._ended()
                    self._unread += part
        except OSError as error:
            raise self._ended(f" ({error})") from error
        except RecursionError as error:
            raise self._over("got no request: it is nested too deep", "policy") from error
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        """End the process; ``ask`` raises ProcessEnded from then on. May be called twice."""
        self._end = self._end or ProcessEnded(f"the process of {self._name} was closed", "infra")
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        self._process.wait()

    def _ended(self, why: str = "") -> ProcessEnded:
        """The error of a process whose pipes are closed."""
        try:
            killed = self._process.wait(5) == -signal.SIGKILL  # its own memory limit raises MemoryError instead
        except subprocess.TimeoutExpired:
            killed = False
        return self._over(f"ended{why}", "infra" if killed else "policy")

    def _over(self, what: str, blame: Blame) -> ProcessEnded:
        """Kill the process, and return the error of this and every later request."""
        self._end = ProcessEnded(f"the process of {self._name} {what}", blame)
        self.close()
        return self._end

    def _state(self) -> tuple[bool, float]:
        """Whether the process sleeps (it could run, or is stopped, otherwise), and its processor time in seconds."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0] == "S", (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def open_channel() -> tuple[Iterator[Any], Callable[[Any], None]]:
    """For use in the program: returns (iterator over requests, function that answers one), both JSON values. Limits the
    memory of this process to ``MEMORY_BYTES``, and sends what is printed to standard error."""
    import resource

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    def answer(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    return map(json.loads, sys.stdin), answer
