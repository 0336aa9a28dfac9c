"""The Python tool's inside: cells one after another, and functions that the harness answers. Runs in the sandbox.

Standard library alone: its text is put into a sandbox beside the sandbox's own ``repl.py`` and ``look.py``, which run
a cell and show values and errors as IPython does. What MINT recorded is standard output with tracebacks in it and
nothing of standard error (mint-bench 3f7f12c).

A message is one line of JSON in, one out:

| in | out |
|---|---|
| ``{"code": ...}`` | ``{"out": ...}``, or first any number of calls |
| ``{"answer": ...}`` or ``{"error": ...}`` | as above: the cell goes on |
| | ``{"call": name, "arguments": [...]}``: the cell waits for an answer |
"""

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

ENOUGH_CHARS = 100_000
"""Of a cell's output no more is handed on: the harness shows far less."""


class ToolError(Exception):
    """A function of the harness could not answer."""


class Channel:
    """Where messages come from and go to; the cells' own streams are elsewhere."""

    def __init__(self, orders: TextIO, answers: TextIO, report: TextIO) -> None:
        self._orders, self._answers, self._report = orders, answers, report
        self._word = ""

    def receive(self) -> dict[str, Any]:
        """The next message, behind which stands the word that ends its step; SystemExit where the harness is gone."""
        line = self._orders.readline()
        self._word = self._orders.readline().strip()
        if not self._word:
            raise SystemExit(0)
        message: dict[str, Any] = json.loads(line)
        return message

    def send(self, message: Mapping[str, Any]) -> None:
        """Say something, and end the step."""
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()
        self._report.write(f"{self._word} 0\n")
        self._report.flush()

    def call(self, name: str, arguments: Sequence[str]) -> str:
        """A function of the harness; time spent waiting is not interrupted, or answers would go astray."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        try:
            self.send({"call": name, "arguments": arguments})
            answer = self.receive()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        if "error" in answer:
            raise ToolError(answer["error"])
        return str(answer["answer"])


class Capture(io.StringIO):
    """Standard output of a cell; what is beyond ENOUGH_CHARS is dropped."""

    def write(self, text: str) -> int:
        left = ENOUGH_CHARS - self.tell()
        if left > 0:
            super().write(text[:left])
        return len(text)


def make_function(channel: Channel, name: str, parameters: Sequence[str]) -> Callable[..., str]:
    """A function with real parameter names, so that it can be called with keywords and its errors look right."""
    scope: dict[str, Any] = {"_call": lambda *values: channel.call(name, [str(value) for value in values])}
    typed = ", ".join(f"{parameter}: str" for parameter in parameters)
    exec(f"def {name}({typed}) -> str:\n    return _call({', '.join(parameters)})\n", scope)
    function: Callable[..., str] = scope[name]
    return function


def run_cell(interpreter: Any, code: str, time_s: float, programs: int) -> str:
    """What a cell printed, and behind it what programs that it started printed (they write to ``programs``)."""
    captured, ignored = Capture(), Capture()
    os.ftruncate(programs, 0)
    with contextlib.redirect_stdout(captured), contextlib.redirect_stderr(ignored):
        try:
            interpreter.run(code, time_s)
        except BaseException as error:  # the alarm may ring between two lines of the interpreter itself
            captured.write(f"{type(error).__name__}: {error}\n")
    return captured.getvalue() + os.pread(programs, ENOUGH_CHARS, 0).decode("utf-8", "replace")


def _nameless_file() -> int:
    """Descriptor of a file in the sandbox's own tree, beneath its limit (and allowed where memory files are not)."""
    fd, path = tempfile.mkstemp(dir="/tmp")
    os.unlink(path)
    return fd


def main(look: Any, repl: Any, time_s: float, tools: Mapping[str, Sequence[str]]) -> None:
    """Serve on the descriptors of a sandbox session: 9 brings messages and a word each, 8 takes the word back."""
    orders, report = os.fdopen(9, encoding="utf-8"), os.fdopen(8, "w", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null, programs = os.open(os.devnull, os.O_RDWR), _nameless_file()
    for fd, target in ((0, null), (1, programs), (2, null)):
        os.dup2(target, fd)
    for fd in (8, 9):
        os.set_inheritable(fd, False)
    sys.stdin = os.fdopen(0)
    channel = Channel(orders, answers, report)
    interpreter = repl.Interpreter(look)
    interpreter.main.__dict__.update({name: make_function(channel, name, names) for name, names in tools.items()})
    while True:
        message = channel.receive()
        # An answer to a call that is no longer waited for is no cell.
        channel.send({"out": run_cell(interpreter, message["code"], time_s, programs) if "code" in message else ""})
