"""Framing of the channel between the harness and the first process of a sandbox: length, kind, payload.

Code of the policy never holds an end of this channel, so it cannot forge a frame. Payloads are JSON, which the receiver
validates, or bytes."""

import json
import os
import struct
from collections.abc import Mapping
from typing import Any

HEADER = struct.Struct(">IB")
JSON, DATA, STDOUT, STDERR = range(4)
LARGEST = 16 * 2**20
"""Maximum payload in bytes; longer data is split into several frames."""


class WireError(RuntimeError):
    """Raised if the other side sends a frame that is invalid or of an unexpected kind."""


class Frames:
    """Assembles frames from a byte stream: ``feed`` appends received bytes, ``next`` returns complete frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        self._held += data

    def next(self) -> tuple[int, bytes] | None:
        """Remove and return the next complete frame as (kind, payload); None if more bytes are needed. Raises WireError
        for a frame of unknown kind or of more than LARGEST bytes (16 MiB)."""
        if len(self._held) < HEADER.size:
            return None
        size, kind = HEADER.unpack_from(self._held)
        if size > LARGEST or kind > STDERR:
            raise WireError(f"frame of {size} bytes and kind {kind}: expected at most {LARGEST} and {STDERR}")
        end = HEADER.size + size
        if len(self._held) < end:
            return None
        payload = bytes(self._held[HEADER.size : end])
        del self._held[:end]
        return kind, payload


def frame(kind: int, payload: bytes) -> bytes:
    return HEADER.pack(len(payload), kind) + payload


def json_frame(message: Mapping[str, Any]) -> bytes:
    return frame(JSON, json.dumps(message).encode())


def data_frames(data: bytes) -> bytes:
    """Encode ``data`` as DATA frames of at most LARGEST bytes (16 MiB), followed by an empty one that marks the end."""
    parts = [frame(DATA, data[at : at + LARGEST]) for at in range(0, len(data), LARGEST)]
    return b"".join([*parts, frame(DATA, b"")])


def write_all(fd: int, data: bytes) -> None:
    """Write all of ``data`` to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[: 2**20]) :]


class Pipe:
    """A channel of frames over two blocking descriptors, which may be the same number (a socket)."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd, self.write_fd = read_fd, write_fd
        self.frames = Frames()

    def send(self, kind: int, payload: bytes) -> None:
        write_all(self.write_fd, frame(kind, payload))

    def send_json(self, message: Mapping[str, Any]) -> None:
        write_all(self.write_fd, json_frame(message))

    def send_data(self, data: bytes) -> None:
        write_all(self.write_fd, data_frames(data))

    def receive(self) -> tuple[int, bytes]:
        """Wait for the next frame: (kind, payload). Raises EOFError if the other side has closed it, WireError for an
        invalid frame."""
        while (received := self.frames.next()) is None:
            more = os.read(self.read_fd, 2**18)
            if not more:
                raise EOFError("the other side of the channel is gone")
            self.frames.feed(more)
        return received

    def receive_json(self) -> dict[str, Any]:
        kind, payload = self.receive()
        if kind != JSON:
            raise WireError(f"frame of kind {kind}: expected JSON")
        message = json.loads(payload)
        if not isinstance(message, dict):
            raise WireError(f"a JSON {type(message).__name__}: expected an object")
        return message

    def receive_data(self) -> bytes:
        parts: list[bytes] = []
        while True:
            kind, payload = self.receive()
            if kind != DATA:
                raise WireError(f"frame of kind {kind}: expected data")
            if not payload:
                return b"".join(parts)
            parts.append(payload)
