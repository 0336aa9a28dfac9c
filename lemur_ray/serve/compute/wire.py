"""Calls between the processes of one engine: JSON and the bytes of arrays, on a connection with a shared secret.

Nothing that arrives is ever unpickled or run. Knows nothing of what is called."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import jax
import numpy as np


def encode(name: str, arguments: tuple[Any, ...], arrays: list[jax.Array]) -> bytes:
    """Encode a call of ``name``. Arguments: numbers, strings, numpy arrays, named tuples, members of ``arrays``.
    Raises ValueError for a jax array that is none of ``arrays``."""
    pieces: list[bytes] = []

    def node(value: Any) -> Any:
        if isinstance(value, jax.Array):
            numbers = [i for i, array in enumerate(arrays) if array is value]
            if not numbers:
                raise ValueError(f"{name} has an argument array that no call of this step returned")
            return {"kept": numbers[0]}
        if isinstance(value, np.ndarray | np.generic):
            pieces.append(value.tobytes())
            return {"array": [value.dtype.str, list(value.shape)]}
        if isinstance(value, tuple):
            return {"tuple": [type(value).__name__, [node(field) for field in value]]}
        return value

    header = json.dumps([name, [node(argument) for argument in arguments]]).encode()
    return b"".join([len(header).to_bytes(4, "big"), header, *pieces])


def decode(
    message: bytes, arrays: list[jax.Array], forms: Mapping[str, type] | None = None
) -> tuple[str, tuple[Any, ...]]:
    """Inverse of ``encode``: name and arguments. arrays: those that the arguments may refer to by number. forms: types
    of named tuples by name. Raises ValueError for a malformed message, LookupError for an unknown array or type."""
    begin = 4 + int.from_bytes(message[:4], "big")
    at = begin

    def value(node: Any) -> Any:
        nonlocal at
        if not isinstance(node, dict):
            return node
        if "kept" in node:
            return arrays[node["kept"]]
        if "tuple" in node:
            name, fields = node["tuple"]
            return (forms or {})[name](*[value(field) for field in fields])
        dtype, shape = node["array"]
        array = np.frombuffer(message, np.dtype(dtype), int(np.prod(shape)), at).reshape(shape)
        at += array.nbytes
        return array

    name, arguments = json.loads(message[4:begin])
    return name, tuple(value(argument) for argument in arguments)


def called(message: bytes) -> str:
    """Name of the function in an encoded call; its arguments are not decoded."""
    return json.loads(message[4 : 4 + int.from_bytes(message[:4], "big")])[0]


class Line:
    """One end of the TCP connection between leader and follower, with keep-alive (a silent peer is lost after 20 s).
    ``send`` may be called from any thread, ``receive`` from one."""

    def __init__(self, connection: Connection[Any, Any]):
        self._connection, self._lock = connection, threading.Lock()
        with socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as same:
            # Calls are small and frequent: waiting for acknowledgements would cost 40 ms each.
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A host that loses power closes no connection.
            same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
                same.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            same.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 20_000)

    def send(self, message: bytes) -> None:
        """Send a message. Raises OSError if the other end is closed."""
        with self._lock:
            self._connection.send_bytes(message)

    def receive(self) -> bytes:
        """Wait for the next message. Raises EOFError or OSError if the other end is closed."""
        return self._connection.recv_bytes()

    def close(self) -> None:
        self._connection.close()


def connect(address: tuple[str, int], secret: bytes) -> Line:
    """Connect a follower to the leader's (host, port). secret: shared by leader and followers. Raises
    AuthenticationError if the secrets differ, OSError if nothing listens there."""
    return Line(Client(address, "AF_INET", authkey=secret))


class FollowerListener:
    """The leader's listening socket on a free port of ``host``; a daemon thread accepts followers that know ``secret``.
    ``address`` is its (host, port)."""

    def __init__(self, host: str, secret: bytes):
        self._listener = Listener((host, 0), "AF_INET", backlog=64, authkey=secret)
        self.address: tuple[str, int] = self._listener.address
        self._arrived: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._closed = False
        threading.Thread(target=self._accept, name="listener", daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                self._arrived.put(Line(self._listener.accept()))
            except (AuthenticationError, EOFError, OSError):
                continue  # an unauthenticated peer, or closed

    def next(self, timeout_s: float) -> Line:
        """Connection of the next authenticated follower. Raises queue.Empty after the timeout."""
        return self._arrived.get(timeout=timeout_s)

    def close(self) -> None:
        """Stop listening; existing connections stay open."""
        self._closed = True
        with contextlib.suppress(OSError), socket.create_connection(self.address, timeout=1):
            pass  # wakes the accepting thread, which otherwise holds the port
        self._listener.close()
