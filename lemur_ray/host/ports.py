"""Free TCP ports of this machine."""

import contextlib
import errno
import random
import socket

_CHOICE = range(20_000, 30_000)
"""Ports above those of Ray's workers and below Linux's ephemeral range, which other programs are unlikely to take."""

_issued: set[int] = set()


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of ``host`` without a listener, at random from 20000 to 29999, at most once per process; another one
    if 200 tries find none free."""
    for port in random.SystemRandom().sample(_CHOICE, 200):
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            if port not in _issued:
                _issued.add(port)
                return port
    with socket.create_server((host, 0)) as listener:  # hardly any is free, or the host is no address of this machine
        return int(listener.getsockname()[1])


def unusable(host: str, port: int) -> str:
    """Why no program can listen on ``port`` of ``host`` now; empty if one can. Port 0 checks the host alone."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "somebody listens there already"
        return error.strerror.split(" (")[0] if error.strerror else str(error)
    return ""
