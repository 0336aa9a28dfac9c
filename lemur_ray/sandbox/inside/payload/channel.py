"""The inner end of a session whose steps are exchanges: what it says ends a step, what it hears begins the next.

Runs as a program in a sandbox. Messages on descriptor 9: four bytes of length, then JSON, then the word of the step,
which is told back on descriptor 8. What is said are lines on standard output, which prints of the program beneath do
not reach.
"""

from __future__ import annotations

import json
import os
from typing import Any

ORDERS_FD, REPORT_FD = 9, 8


class Channel:
    """``speaks``: takes standard output for what is said, and the program beneath prints into nothing."""

    def __init__(self, speaks: bool = True) -> None:
        self._results = -1
        for fd in (REPORT_FD, ORDERS_FD):  # programs that are started must not hold the channel
            os.set_inheritable(fd, False)
        if speaks:
            null = os.open(os.devnull, os.O_RDWR)
            self.speak(null)
            os.close(null)

    def speak(self, prints: int) -> None:
        """Take standard output for what is said; prints of the program beneath go to ``prints``, errors nowhere."""
        self._results = os.dup(1)
        null = os.open(os.devnull, os.O_RDWR)
        for fd, target in ((0, null), (1, prints), (2, null)):
            os.dup2(target, fd)
        os.close(null)

    def exchange(self, said: dict[str, Any] | None = None, status: int = 0) -> dict[str, Any]:
        """End this step with ``said`` and wait for the next one's message. Raises EOFError where there is none.

        ``status``: reported with the end; where nothing is said, that and the output are all there is.
        """
        word = bytearray()
        while (letter := _exactly(1)) != b"\n":
            word += letter
        line = b"" if said is None else json.dumps(said).encode() + b"\n"
        while line:
            line = line[os.write(self._results, line) :]
        os.write(REPORT_FD, bytes(word) + b" %d\n" % status)
        heard: dict[str, Any] = json.loads(_exactly(int.from_bytes(_exactly(4), "big")))
        return heard


def _exactly(size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        more = os.read(ORDERS_FD, size - len(parts))
        if not more:
            raise EOFError
        parts += more
    return bytes(parts)
