"""Functions of the harness that cells may call, and cells whose output is returned as one text.

Part of ``repl.py``'s loop, in the sandbox. The text is what the cell prints, followed by the output of programs that it
starts; standard error is discarded, as in MINT's recorded runs (mint-bench 3f7f12c)."""

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
"""Maximum characters of a cell's output; the harness shows far fewer."""


class ToolError(Exception):
    """Raised in a cell if a function of the harness (a tool) that it called failed; the message is the tool's."""


class Capture(io.StringIO):
    """Buffer for a cell's standard output; silently drops everything beyond ENOUGH_CHARS (100,000) characters."""

    def write(self, text: str) -> int:
        left = ENOUGH_CHARS - self.tell()
        if left > 0:
            super().write(text[:left])
        return len(text)


class TextCells:
    """Runs Python cells in ``interpreter`` and returns their output as text. ``functions``: name -> parameter names of
    the harness's functions for cells, with string arguments and results. A call ends the step with ``{"call": name,
    "arguments": [...]}``; the next order has its result: ``{"answer": text}`` or ``{"error": text}``."""

    def __init__(self, channel: Any, interpreter: Any, functions: Mapping[str, Sequence[str]]) -> None:
        self._channel, self._interpreter = channel, interpreter
        self._programs = _nameless_file()
        channel.speak(self._programs)
        for stream in (sys.__stdout__, sys.__stderr__):  # writes to these are no part of a cell's output, as recorded
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(write_through=False)
        sys.stderr = sys.__stderr__ or sys.stderr
        made = {name: self._function(name, parameters) for name, parameters in functions.items()}
        interpreter.main.__dict__.update(made)

    def run(self, code: str, time_s: float) -> str:
        """Run a cell for at most ``time_s`` seconds. Returns what it printed (errors as a traceback, as IPython prints
        them), then what programs that it started printed; each at most 100,000 characters or bytes. Never raises."""
        captured, ignored = Capture(), Capture()
        os.ftruncate(self._programs, 0)
        with contextlib.redirect_stdout(captured), contextlib.redirect_stderr(ignored):
            try:
                self._interpreter.run(code, time_s)
            except BaseException as error:  # the alarm may interrupt the interpreter loop itself
                captured.write(f"{type(error).__name__}: {error}\n")
        return captured.getvalue() + os.pread(self._programs, ENOUGH_CHARS, 0).decode("utf-8", "replace")

    def _function(self, name: str, parameters: Sequence[str]) -> Callable[..., str]:
        """A function with real parameter names, so that it can be called with keywords and its errors look right."""
        scope: dict[str, Any] = {"_call": lambda *values: self._call(name, [str(value) for value in values])}
        typed = ", ".join(f"{parameter}: str" for parameter in parameters)
        exec(f"def {name}({typed}) -> str:\n    return _call({', '.join(parameters)})\n", scope)
        return scope[name]

    def _call(self, name: str, arguments: Sequence[str]) -> str:
        """Ask the harness. The cell's alarm is blocked meanwhile, so that no answer is lost."""
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
    """An unlinked file in the sandbox's tree, so that its size counts against the disk limit. Opened for appending:
    programs share it, and each cell truncates it first."""
    fd, path = tempfile.mkstemp(dir="/tmp")
    os.close(fd)
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    os.unlink(path)
    return fd
