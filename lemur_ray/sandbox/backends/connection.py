"""The harness's end of the channel to a keeper or to the first process of a sandbox."""

import contextlib
import select
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from lemur_ray.sandbox.inside import wire
from lemur_ray.sandbox.untrusted_output import Bounds, UntrustedData, untrusted_json

ANSWER = Bounds(2**16, nodes=1000, depth=5)
"""Bounds of one answer."""


class ConnectionLost(ConnectionError):
    """Raised if the other side has ended, does not answer in time, or violates the protocol."""


class ConnectionSilent(ConnectionLost):
    """Raised if the other side has not answered before the deadline, although the channel is still open."""


class Connection:
    """Request and answer over a socket, one request at a time; every wait has a deadline."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.channel.setblocking(False)
        self._frames = wire.Frames()

    def ask(
        self,
        message: Mapping[str, Any],
        data: bytes | None = None,
        *,
        timeout_s: float,
        output: Callable[[int, bytes], None] | None = None,
    ) -> dict[str, Any]:
        """Send ``message`` as JSON, followed by the bytes ``data`` unless None, and return the JSON object that answers
        it. ``output`` is called with (wire.STDOUT or wire.STDERR, bytes) for each frame of output before the answer;
        without it that is a protocol error. Raises ConnectionLost, ConnectionSilent after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        self._send(wire.json_frame(message) + (b"" if data is None else wire.data_frames(data)), deadline)
        return self.answer(deadline, output)

    def answer(self, deadline: float, output: Callable[[int, bytes], None] | None = None) -> dict[str, Any]:
        """Wait until ``deadline`` (``time.monotonic()``) for the next JSON object and return it. ``output``: called
        with (stream, bytes) for each frame of output before it. Raises ConnectionLost after the deadline, or if the
        other side has ended."""
        while True:
            kind, payload = self._frame(deadline)
            if kind == wire.JSON:
                return _object(payload)
            if output is None or kind == wire.DATA:
                raise ConnectionLost(f"a frame of kind {kind} where an answer was expected")
            output(kind, payload)

    def data(self, deadline: float, max_bytes: int) -> bytes:
        """Receive the bytes that follow an answer, possibly none. Raises ConnectionLost after ``deadline``
        (``time.monotonic()``), or for more than ``max_bytes`` bytes."""
        parts: list[bytes] = []
        size = 0
        while True:
            kind, payload = self._frame(deadline)
            if kind != wire.DATA:
                raise ConnectionLost(f"a frame of kind {kind} where data was expected")
            if not payload:
                return b"".join(parts)
            size += len(payload)
            if size > max_bytes:
                raise ConnectionLost(f"more than the requested {max_bytes} bytes")
            parts.append(payload)

    def hang_up(self) -> None:
        """Shut the socket down, so that a waiting thread gets ConnectionLost. The descriptor stays open: if its number
        were reused at once, the waiting thread would wait for another file."""
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up and close; no other thread may be waiting."""
        self.hang_up()
        self.channel.close()

    def abandon(self) -> None:
        """Close the descriptor in a forked child; the parent's connection stays open."""
        self.channel.close()

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self.channel.send(view[: 2**20]) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)
            except OSError as error:
                raise ConnectionLost(f"the sandbox takes nothing: {error}") from error

    def _frame(self, deadline: float) -> tuple[int, bytes]:
        while True:
            try:
                if (received := self._frames.next()) is not None:
                    return received
                more = self.channel.recv(2**18)
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)
                continue
            except (OSError, wire.WireError) as error:
                raise ConnectionLost(f"the channel to the sandbox broke: {error}") from error
            if not more:
                raise ConnectionLost("the first process of the sandbox is gone")
            self._frames.feed(more)

    def _wait(self, event: int, deadline: float) -> None:
        poller = select.poll()
        try:
            poller.register(self.channel, event)
        except ValueError as error:
            raise ConnectionLost("the channel to the sandbox was closed") from error
        if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise ConnectionSilent("the sandbox does not answer in time")


def _object(payload: bytes) -> dict[str, Any]:
    try:
        message = untrusted_json(payload, ANSWER)
    except UntrustedData as error:
        raise ConnectionLost(f"an answer that cannot be: {error}: {payload[:200]!r}") from error
    if not isinstance(message, dict):
        raise ConnectionLost(f"an answer that is no object: {payload[:200]!r}")
    return message
