"""Functions that cells may call and the harness answers, and cells whose output is handed over as a text.

Runs as a part of ``repl.py``'s loop, in the sandbox. What a cell prints is kept, what it writes to standard error is
not, and what programs that it starts print stands behind it: so MINT recorded it (mint-bench 3f7f12c).
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

ENOUGH_CHARS = 100_000
"""Of a cell's output no more is handed on: the harness shows far less."""


class ToolError(Exception):
    """A function of the harness could not answer."""


class Capture(io.StringIO):
    """Standard output of a cell; what is beyond ENOUGH_CHARS is dropped."""

    def write(self, text: str) -> int:
        left = ENOUGH_CHARS - self.tell()
        if left > 0:
            super().write(text[:left])
        return len(text)


class TextCells:
    """Runs cells of ``interpreter`` and gives their output; takes standard output for ``channel``.

    ``functions``: name -> names of parameters. A call ends the step with ``{"call": name, "arguments": [...]}`` and
    goes on with the answer of the next: ``{"answer": text}`` or ``{"error": text}``.
    """

    def __init__(self, channel: Any, interpreter: Any, functions: Mapping[str, Sequence[str]]) -> None:
        self._channel, self._interpreter = channel, interpreter
        self._programs = _nameless_file()
        channel.speak(self._programs)
        for stream in (sys.__stdout__, sys.__stderr__):  # who writes to these is not in a cell's output, as recorded
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(write_through=False)
        sys.stderr = sys.__stderr__ or sys.stderr
        made = {name: self._function(name, parameters) for name, parameters in functions.items()}
        interpreter.main.__dict__.update(made)

    def run(self, code: str, time_s: float) -> str:
        """What a cell printed, and behind it what programs that it started printed."""
        captured, ignored = Capture(), Capture()
        os.ftruncate(self._programs, 0)
        with contextlib.redirect_stdout(captured), contextlib.redirect_stderr(ignored):
            try:
                self._interpreter.run(code, time_s)
            except BaseException as error:  # the alarm may ring between two lines of the interpreter itself
                captured.write(f"{type(error).__name__}: {error}\n")
        return captured.getvalue() + os.pread(self._programs, ENOUGH_CHARS, 0).decode("utf-8", "replace")

    def _function(self, name: str, parameters: Sequence[str]) -> Callable[..., str]:
        """A function with real parameter names, so that it can be called with keywords and its errors look right."""
        scope: dict[str, Any] = {"_call": lambda *values: self._call(name, [str(value) for value in values])}
        typed = ", ".join(f"{parameter}: str" for parameter in parameters)
        exec(f"def {name}({typed}) -> str:\n    return _call({', '.join(parameters)})\n", scope)
        function: Callable[..., str] = scope[name]
        return function

    def _call(self, name: str, arguments: Sequence[str]) -> str:
        """Time spent waiting is not interrupted, or answers would go astray."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        try:
            answer = self._channel.exchange({"call": name, "arguments": arguments})
        except EOFError:
            raise SystemExit(0) from None
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        if "error" in answer:
            raise ToolError(answer["error"])
        return str(answer["answer"])


def _nameless_file() -> int:
    """A file in the sandbox's own tree, beneath its limit (and allowed where memory files are not).

    Whoever writes writes behind what is there: programs share the place in it, and each cell begins it anew.
    """
    fd, path = tempfile.mkstemp(dir="/tmp")
    os.close(fd)
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    os.unlink(path)
    return fd
