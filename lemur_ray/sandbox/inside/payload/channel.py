"""The inner end of a session that exchanges JSON: an answer ends a step, the next order begins another.

Runs as a program in a sandbox. Orders arrive on descriptor 9: four bytes of length, then JSON, then the step's nonce,
which is reported back on descriptor 8. Answers are lines on standard output; the program's own prints go elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

ORDERS_FD, REPORT_FD = 9, 8


class Channel:
    """A program's end of a session with the harness. ``speaks``: standard output is for JSON answers, prints vanish."""

    def __init__(self, speaks: bool = True) -> None:
        self._results = -1
        for fd in (REPORT_FD, ORDERS_FD):  # programs that are started must not hold the channel
            os.set_inheritable(fd, False)
        if speaks:
            null = os.open(os.devnull, os.O_RDWR)
            self.speak(null)
            os.close(null)

    def speak(self, prints: int) -> None:
        """Reserve standard output for answers. From now on, what this program and its children print goes to descriptor
        ``prints``, standard error to /dev/null, and standard input is empty."""
        self._results = os.dup(1)
        null = os.open(os.devnull, os.O_RDWR)
        for fd, target in ((0, null), (1, prints), (2, null)):
            os.dup2(target, fd)
        os.close(null)

    def serve(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Call ``answer`` with each order (a JSON object) and send the dict that it returns, until the session ends."""
        answered: dict[str, Any] = {"ok": True}
        while True:
            try:
                order = self.exchange(answered)
            except EOFError:
                return
            answered = answer(order)

    def exchange(self, answer: dict[str, Any] | None = None, status: int = 0) -> dict[str, Any]:
        """End the present step and wait for the next order, which is returned. ``answer`` is sent as a line of JSON
        unless None; ``status`` becomes the step's exit code. Raises EOFError when the harness has ended the session."""
        word = bytearray()
        while (letter := _exactly(1)) != b"\n":
            word += letter
        line = b"" if answer is None else json.dumps(answer).encode() + b"\n"
        while line:
            line = line[os.write(self._results, line) :]
        os.write(REPORT_FD, bytes(word) + b" %d\n" % status)
        return json.loads(_exactly(int.from_bytes(_exactly(4), "big")))


def _exactly(size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        more = os.read(ORDERS_FD, size - len(parts))
        if not more:
            raise EOFError
        parts += more
    return bytes(parts)
