"""History of the writes that reach a bucket service: what each did to its object, and which client sent it.

``History`` is filled by the service in the order in which writes take effect; ``history_rules`` checks it. Knows
nothing of HTTP.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

KEPT_BYTES = 1 << 20
"""Content of smaller JSON objects is kept for the rules, and that of pieces of any size."""


@dataclass(frozen=True)
class Client:
    """The sender of a request: a process on a host, which uses one entrance of the service."""

    entrance: str = ""
    """Name of the address that its command was given; empty for the common one."""
    host: str = ""
    pid: int = 0
    """As this machine counts; 0 if it is not known."""
    agent: str = ""

    @property
    def process(self) -> tuple[str, str, int]:
        return self.entrance, self.host, self.pid

    def __str__(self) -> str:
        return f"{self.entrance or 'a client'} (process {self.pid} on {self.host}, {self.agent.split('/')[0]})"


TEST = Client("the test itself")
"""Author of writes that a test makes on purpose; no rule binds it."""


@dataclass(frozen=True)
class Write:
    """One request to write or delete an object, accepted or refused."""

    number: int
    """Place in the history, from 1."""
    name: str
    """``bucket/name`` of the object."""
    client: Client
    status: int = 200
    """HTTP status of the answer; above 299 nothing was changed."""
    deletes: bool = False
    before: int = 0
    """Generation that it found, 0 if there was no object."""
    after: int = 0
    """Generation that it left, 0 if there is no object."""
    condition: Mapping[str, str] = field(default_factory=dict)
    size: int = 0
    """Bytes of the content."""
    size_before: int = 0
    sha256: str = ""
    extends: bool = True
    """Whether the content begins with the content that it replaced."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    data: bytes | None = None
    """The content, where ``KEPT_BYTES`` says so."""
    at_s: float = 0.0
    """``time.monotonic`` of this machine."""

    @property
    def accepted(self) -> bool:
        return self.status < 300

    def value(self) -> dict[str, Any]:
        """The JSON object in the content, {} if it holds none."""
        try:
            value = json.loads(self.data or b"{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def __str__(self) -> str:
        what = "deleted" if self.deletes else f"wrote {self.size} bytes to"
        answer = "" if self.accepted else f", refused with {self.status}"
        condition = "".join(f", {name} {value}" for name, value in self.condition.items() if name.startswith("if"))
        return f"#{self.number}: {self.client} {what} {self.name}{condition}{answer}"


class History:
    """All writes of one service in order; safe from any thread."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.excused: set[str] = set()
        """Rules that the test breaks on purpose."""
        self.watch: Callable[[Write], None] | None = None
        """Called with each write before it is answered."""
        self._lock = threading.Lock()
        self._sender = threading.local()
        self._tampering = 0

    @contextlib.contextmanager
    def sent_by(self, client: Client) -> Iterator[None]:
        """Context in which this thread's writes are those of ``client``; outside of one they are the test's own."""
        before = getattr(self._sender, "client", TEST)
        self._sender.client = client
        try:
            yield
        finally:
            self._sender.client = before

    @property
    def client(self) -> Client:
        """Sender of the request that this thread serves."""
        return TEST if self._tampering else getattr(self._sender, "client", TEST)

    @contextlib.contextmanager
    def tampering(self) -> Iterator[None]:
        """Context in which all writes are damage that the test does on purpose, whoever sends them."""
        self._tampering += 1
        try:
            yield
        finally:
            self._tampering -= 1

    def add(self, name: str, data: bytes | None, data_before: bytes | None, **fields: Any) -> None:
        """Append a write. data: its content, None for a deletion. data_before: content that it replaced, if any."""
        content, old = data or b"", data_before or b""
        keeps = ".pieces/" in name or (content[:1] == b"{" and len(content) <= KEPT_BYTES)
        with self._lock:
            write = Write(
                len(self.writes) + 1, name, self.client, deletes=data is None, size=len(content), size_before=len(old),
                sha256=hashlib.sha256(content).hexdigest(), extends=content.startswith(old),
                data=content if keeps else None, at_s=time.monotonic(), **fields,
            )  # fmt: skip
            self.writes.append(write)
        if (watch := self.watch) is not None:
            watch(write)

    def accepted(self, under: str = "") -> list[Write]:
        """Accepted writes of objects whose name begins with ``under``."""
        return [write for write in list(self.writes) if write.accepted and write.name.startswith(under)]


def process_at(address: str, port: int) -> int:
    """Process of this machine, in any network namespace, that has a TCP socket bound to address and port; 0 if none."""
    spaces: dict[str, list[str]] = defaultdict(list)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            spaces[os.readlink(f"/proc/{pid}/ns/net")].append(pid)
    local = "".join(f"{int(part):02X}" for part in reversed(address.split("."))) + f":{port:04X}"
    for pids in spaces.values():
        with contextlib.suppress(OSError), open(f"/proc/{pids[0]}/net/tcp") as sockets:
            inodes = [fields[9] for fields in map(str.split, sockets) if fields[1] == local and fields[9] != "0"]
            if inodes:
                return _owner(f"socket:[{inodes[0]}]", pids)
    return 0


def _owner(socket: str, pids: list[str]) -> int:
    known = [pid for pid in pids if int(pid) in _CLIENTS]
    for pid in [*known, *(pid for pid in pids if pid not in known)]:
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{number}") == socket:
                        _CLIENTS.add(int(pid))
                        return int(pid)
    return 0


_CLIENTS: set[int] = set()
"""Processes that had a connection before: most connections are theirs."""
