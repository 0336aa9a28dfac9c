"""The harness's side of a keeper (``inside/keeper.py``): asks it for generations, asks it whether it is well.

Both backends hold their keeper by one socket and differ only in what they start it in. Knows nothing of either.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any

from lemur_ray.sandbox.backends.connection import Connection, ConnectionLost
from lemur_ray.sandbox.backends.driven_sandbox import START_S
from lemur_ray.sandbox.sandbox import Blame, SandboxDestroyed, SandboxSpec

OVERHEAD = 3
"""Processes of ours that the kernel counts with those of the sandbox's user."""
OURS_BYTES = 64 * 2**20
"""Memory of keeper and first process, and the kernel's own for the sandbox."""
WATCHED = "resident memory is watched and the largest process killed, which a program can dodge"
"""What is done about the sum of memory where no control group bounds it."""
HELD = ("SYS_ADMIN", "SYS_CHROOT", "SETPCAP", "NET_ADMIN", "DAC_OVERRIDE", "KILL")
"""Capabilities of keeper and first process, in the sandbox's own user namespace. No program of the policy has any."""
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC = (
    *("ld.so.cache", "alternatives", "localtime", "magic", "magic.mime", "mime.types", "terminfo", "fonts", "perl"),
    *("ImageMagick-6", "ImageMagick-7", "services", "protocols", "ssl/openssl.cnf"),
)
"""What of /etc is shown where the specification names no root file system."""
ETC_NETWORK = ("resolv.conf", "ssl/certs", "ca-certificates")
NOT_OF_ROOTFS = {"proc", "sys", "dev", "tmp", "run", "work", "home", "root", "mnt"}


def etc_shown(spec: SandboxSpec) -> tuple[str, ...]:
    """Names and patterns of names."""
    return (*ETC, *(ETC_NETWORK if spec.network else ()), *spec.etc)


def whose_end(keeper: KeeperClient, memory_kills: int) -> Blame:
    """Whose doing the end of a generation was.

    Its first process takes no signal from inside: SIGKILL came from the machine, unless it was for the memory that the
    generation had used up.
    """
    if memory_kills:
        return "policy"
    ended = keeper.ended()
    return "infra" if ended is None or ended["killed"] else "policy"


class KeeperClient:
    """A keeper at the other end of ``channel``, which lives as long as this end is open."""

    def __init__(self, channel: socket.socket) -> None:
        self._keeper = Connection(channel)

    def greet(self, packed: bytes, first: Mapping[str, Any] | None = None) -> None:
        """Wait until it is there and hand it the packed trees; ``first``: what it must be told before it can start.

        ConnectionLost, with its own words where it has any, if it does not come up.
        """
        if first is None:
            hello = self._keeper.answer(time.monotonic() + START_S)
        else:
            hello = self._keeper.ask(first, timeout_s=START_S)
        if "error" in hello:
            raise ConnectionLost(str(hello["error"]))
        self._keeper.ask({"op": "trees"}, packed, timeout_s=START_S)

    def begin(self, spec: SandboxSpec, mounts: Iterable[str], memory_cgroup: bool) -> Connection:
        """End the present generation and start one; the connection to its first process.

        ``mounts``: paths inside, in the order in which they are numbered. SandboxDestroyed, blamed on the machine.
        """
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
            # The byte that carries the descriptor goes once the keeper waits for it: a plain read would lose it.
            self._keeper.ask({"op": "begin", "spec": order}, timeout_s=START_S)
            socket.send_fds(self._keeper.channel, [b"f"], [theirs.fileno()])
            answer = self._keeper.answer(time.monotonic() + START_S)
        except (ConnectionLost, OSError) as error:
            ours.close()
            raise SandboxDestroyed(f"the keeper makes no generation: {error}", "infra") from error
        finally:
            theirs.close()
        if "error" in answer:
            ours.close()
            raise SandboxDestroyed(f"a sandbox cannot be reset: {answer['error']}", "infra")
        return Connection(ours)

    def ended(self) -> Mapping[str, Any] | None:
        """How the generation ended (``killed``: by SIGKILL), if the keeper itself is well; else None."""
        try:
            return self._keeper.ask({"op": "ended"}, timeout_s=5.0)
        except ConnectionLost:
            return None

    def abandon(self) -> None:
        """Close the copy that a fork made: the parent's keeper goes on."""
        self._keeper.abandon()

    def hang_up(self) -> None:
        """Let it go, while another thread may still be waiting for its answer."""
        self._keeper.hang_up()

    def close(self) -> None:
        """Let it go: it exits, and everything beneath it ends."""
        self._keeper.close()
