"""The inner end of a session whose steps are exchanges: what it says ends a step, what it hears begins the next.

Runs as a program in a sandbox, as ``plain.py`` does. Messages on descriptor 9: four bytes of length, then JSON, then
the word of the step, which is told back on descriptor 8. What is said are lines on standard output, which prints of the
program beneath do not reach.
"""

from __future__ import annotations

import json
import os
from typing import Any

ORDERS_FD, REPORT_FD = 9, 8


class Channel:
    """Takes standard output for itself; the program beneath prints into nothing."""

    def __init__(self) -> None:
        self._results = os.dup(1)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (1, 2):
            os.dup2(null, fd)
        for fd in (ORDERS_FD, REPORT_FD):
            os.set_inheritable(fd, False)

    def exchange(self, said: dict[str, Any]) -> dict[str, Any]:
        """End this step with ``said`` and wait for the next one's message. Raises EOFError where there is none."""
        word = bytearray()
        while (letter := _exactly(1)) != b"\n":
            word += letter
        line = json.dumps(said).encode() + b"\n"
        while line:
            line = line[os.write(self._results, line) :]
        os.write(REPORT_FD, bytes(word) + b" 0\n")
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
