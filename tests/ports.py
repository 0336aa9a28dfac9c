"""Ports for processes that bind them later, which nobody else on the machine is given meanwhile."""

from __future__ import annotations

import contextlib
import random
import socket

_issued: set[int] = set()


def port() -> int:
    """A port that nobody listens on, each only once, and below those that the system gives to whoever asks for any."""
    while True:
        number = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", number)):
            if number not in _issued:
                _issued.add(number)
                return number
