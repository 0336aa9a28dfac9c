"""Free ports of this machine. Knows nothing of who will listen there."""

from __future__ import annotations

import contextlib
import errno
import random
import socket

_CHOICE = range(20_000, 30_000)
"""Above those of Ray's workers, below those that Linux gives to whoever asks for any: nobody gets one by chance while
the caller, or a process that it starts, has yet to listen."""

_issued: set[int] = set()


def free_port(host: str = "127.0.0.1") -> int:
    """A port of ``host`` nobody listens on now, each only once; a process that looks for one by itself may take it."""
    for port in random.SystemRandom().sample(_CHOICE, 200):
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            if port not in _issued:
                _issued.add(port)
                return port
    with socket.create_server((host, 0)) as listener:  # hardly any is free, or the host is no address of this machine
        return int(listener.getsockname()[1])


def unusable(host: str, port: int) -> str:
    """Why nobody can listen there now, in words; empty where one can. Port 0: whether the host is one of ours."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "somebody listens there already"
        return error.strerror.split(" (")[0] if error.strerror else str(error)
    return ""
