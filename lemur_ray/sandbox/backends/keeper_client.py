"""The harness's client of a keeper (``inside/keeper.py``), the process that owns a sandbox's namespaces, and the
housing that it controls, common to both backends.

The client requests new generations (each a fresh sandbox in the same namespaces) and asks how one ended. Backends
differ only in how they start a keeper."""

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lemur_ray.sandbox.backends import cgroup, python_inside, slots
from lemur_ray.sandbox.backends.connection import Connection, ConnectionLost
from lemur_ray.sandbox.inside import tree
from lemur_ray.sandbox.sandbox import Blame, SandboxDestroyed, SandboxSpec

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_S = 60.0
OVERHEAD = 3
"""Number of the harness's own processes that the kernel counts with the sandbox user's."""
OURS_BYTES = 64 * 2**20
"""Memory in bytes of keeper and first process, and of the kernel for the sandbox."""
MEMORY_WATCH_NOTE = "resident memory is watched and the largest process killed, which a program can dodge"
"""For people: how the sum of memory is limited without a control group."""
HELD = ("SYS_ADMIN", "SYS_CHROOT", "SETPCAP", "NET_ADMIN", "DAC_OVERRIDE", "KILL")
"""Capabilities of keeper and first process in the sandbox's user namespace; no other program has any."""
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC = (
    *("ld.so.cache", "alternatives", "localtime", "magic", "magic.mime", "mime.types", "terminfo", "fonts", "perl"),
    *("ImageMagick-6", "ImageMagick-7", "services", "protocols", "ssl/openssl.cnf"),
)
"""Names in /etc that are mounted if the specification has no root file system."""
ETC_NETWORK = ("resolv.conf", "ssl/certs", "ca-certificates")
NOT_OF_ROOTFS = {"proc", "sys", "dev", "tmp", "run", "work", "home", "root", "mnt"}


def etc_shown(spec: SandboxSpec) -> tuple[str, ...]:
    """Names and glob patterns, relative to /etc, of the host's files that a sandbox of ``spec`` mounts."""
    return (*ETC, *(ETC_NETWORK if spec.network else ()), *spec.etc)


def blame_for_end(keeper: "KeeperClient", memory_kills: int) -> Blame:
    """Who is to blame for the end of a sandbox's processes: "policy" if the kernel killed some for memory
    (``memory_kills`` > 0) or the first process exited by itself, "infra" if SIGKILL ended it or the keeper does not
    answer. No signal from inside reaches the first process, so SIGKILL came from the machine."""
    if memory_kills:
        return "policy"
    ended = keeper.ended()
    return "infra" if ended is None or ended["killed"] else "policy"


def packed_trees(spec: SandboxSpec) -> bytes:
    """The files that are copied into a sandbox, for ``greet``. Raises FileNotFoundError, ValueError (``tree.pack``)."""
    return tree.pack([*([("/work", spec.tree)] if spec.tree else []), *spec.trees.items()])


class KeeperFailed(ConnectionLost):
    """Raised if a keeper process did not start. ``in_namespace``: whether it had entered its user namespace."""

    def __init__(self, message: str, *, in_namespace: bool) -> None:
        super().__init__(message)
        self.in_namespace = in_namespace


class KeeperClient(Connection):
    """Client of the keeper at the other end of the socket ``channel``. Closing it ends the whole sandbox."""

    def greet(self, packed: bytes, first: Mapping[str, Any] | None = None) -> None:
        """Wait up to START_S seconds for the keeper to start, and send it ``packed``, the file trees as
        ``inside.tree.pack`` returns them. ``first``: a message that it needs before, if any. Raises KeeperFailed with
        the keeper's error message, or ConnectionLost if it does not answer."""
        hello = self.ask(first, timeout_s=START_S) if first else self.answer(time.monotonic() + START_S)
        if "error" in hello:
            raise KeeperFailed(str(hello["error"]), in_namespace=bool(hello.get("in_namespace")))
        self.ask({"op": "trees"}, packed, timeout_s=START_S)

    def begin(self, spec: SandboxSpec, mounts: Iterable[str], memory_cgroup: bool) -> Connection:
        """Replace the present generation by a new one with the limits and options of ``spec``; returns the connection
        to its first process. ``mounts``: paths inside of the numbered mounts, in order. ``memory_cgroup``: whether a
        control group limits memory, not the first process. Raises SandboxDestroyed, blamed on the machine."""
        limits = spec.limits
        order = {
            "disk_bytes": limits.disk_bytes,
            "inodes": limits.inodes,
            "memory_bytes": limits.memory_bytes,
            "processes": limits.processes,
            "overhead": OVERHEAD,
            "memory_cgroup": memory_cgroup,
            "network": spec.network,
            "as_root": spec.as_root,
            "writable_root": spec.writable_root,
            "masked": list(spec.masked),
            "mounts": list(mounts),
            "rootfs": spec.rootfs is not None,
            "tracing": spec.tracing,
        }
        ours, theirs = socket.socketpair()
        try:
            # The descriptor is sent once the keeper waits for it; its plain read would lose it.
            self.ask({"op": "begin", "spec": order}, timeout_s=START_S)
            socket.send_fds(self.channel, [b"f"], [theirs.fileno()])
            answer = self.answer(time.monotonic() + START_S)
        except (ConnectionLost, OSError) as error:
            ours.close()
            raise SandboxDestroyed(f"the keeper could not start a new sandbox: {error}", "infra") from error
        finally:
            theirs.close()
        if "error" in answer:
            ours.close()
            raise SandboxDestroyed(f"a sandbox cannot be reset: {answer['error']}", "infra")
        return Connection(ours)

    def ended(self) -> Mapping[str, Any] | None:
        """Ask how the generation ended: ``{"killed": whether by SIGKILL}``; None without an answer within 5 s."""
        try:
            return self.ask({"op": "ended"}, timeout_s=5.0)
        except ConnectionLost:
            return None


class Housing(ABC):
    """The process tree on the host in which a sandbox lives, a bubblewrap process or a container. A subclass starts it
    and its ``keeper``; it raises SandboxUnavailable if that fails."""

    def __init__(self, spec: SandboxSpec, own_python: Path | None) -> None:
        """``own_python``: folder of this machine's Python to mount, None if the sandbox's system has the version."""
        mounts_python = own_python is not None and spec.rootfs is None
        self.spec = spec
        self.env: Mapping[str, str] = {}
        """Environment variables that every program needs in this housing."""
        self.mounts: dict[str, Path] = {}
        """Path inside -> folder of this machine."""
        if own_python and mounts_python:
            self.env = {"PATH": f"{python_inside.INSIDE}/bin:{PATH}", **python_inside.environment()}
            self.mounts[python_inside.INSIDE] = own_python
        self.mounts |= spec.mounts
        self.slot = slots.take()
        self.cgroup: cgroup.Cgroup | None = None
        self.summed = False
        """Whether the summed memory is limited from outside; else the first process watches it."""
        self.keeper: KeeperClient | None = None
        self._kills_before = 0

    def begin(self) -> Connection:
        """Kill the present generation (all processes and files of the sandbox), if any, and start a new one. Returns
        the connection to its first process. Raises SandboxDestroyed or ConnectionLost if none starts."""
        assert self.keeper
        self._kills_before = self.memory_kills()
        return self.keeper.begin(self.spec, self.mounts, self.summed)

    def memory_kills(self) -> int:
        """Number of processes that the kernel has killed so far for exceeding the sandbox's memory."""
        return self.cgroup.oom_kills() if self.cgroup else 0

    def blame_for_end(self) -> Blame:
        """Who is to blame for a broken connection."""
        assert self.keeper
        return blame_for_end(self.keeper, self.memory_kills() - self._kills_before)

    def hang_up(self) -> None:
        """Disconnect from the keeper; a call that waits in another thread then raises ConnectionLost."""
        if self.keeper:
            self.keeper.hang_up()

    @abstractmethod
    def destroy(self) -> None:
        """End the sandbox: its keeper, processes and files; release its slot. Idempotent, never raises."""

    def abandon(self) -> None:
        """Close a forked child's descriptors; the parent keeps the housing."""
        if self.keeper:
            self.keeper.abandon()
        self.slot.abandon()
