"""Bindings of kernel calls that Python lacks: mounts, namespaces, capabilities, prctl."""

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterable

_libc = ctypes.CDLL(None, use_errno=True)

NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
NEWUSER = 0x10000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
SET_DUMPABLE, SET_SECCOMP, CAPBSET_DROP, SET_NO_NEW_PRIVS = 4, 22, 24, 38
CAPABILITY_VERSION_3 = 0x20080522
LAST_CAPABILITY = 63
CAPABILITIES = {"DAC_OVERRIDE": 1, "KILL": 5, "SETPCAP": 8, "NET_ADMIN": 12, "SYS_CHROOT": 18, "SYS_ADMIN": 21}
"""Name -> number of the capabilities in use (linux/capability.h)."""


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Call mount(2) (``kind``: file system type, ``flags``: MS_* bits). Raises OSError with the target's path."""
    _checked(
        _libc.mount(
            os.fsencode(source), os.fsencode(target), kind.encode() if kind else None, flags, options.encode() or None
        ),
        f"mount {target}",
    )


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), f"unshare {flags:#x}")


def prctl(option: int, value: int = 0, pointer: ctypes.c_void_p | None = None) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), pointer or ctypes.c_ulong(0), 0, 0), f"prctl {option}")


def drop_bounding_set() -> None:
    """Prevent all programs that this process executes from here on from gaining a capability, even as user 0. Needs
    the capability SETPCAP; without it nothing changes, and no error is raised."""
    for number in range(LAST_CAPABILITY + 1):
        # The kernel answers EINVAL for capabilities it does not know.
        _libc.prctl(CAPBSET_DROP, ctypes.c_ulong(number), ctypes.c_ulong(0), 0, 0)


def keep_capabilities(numbers: Iterable[int]) -> None:
    """Drop all capabilities of the calling thread but these numbers (below 32), which must be permitted already. The
    bounding set stays: a program executed as user 0 regains capabilities unless ``drop_bounding_set`` was called
    before, or SET_NO_NEW_PRIVS is set. Raises OSError."""
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    kept = sum(1 << number for number in numbers)  # all of them below 32, so the upper halves stay empty
    _checked(_libc.capset(header, struct.pack("6I", kept, kept, 0, 0, 0, 0)), "capset")


def loopback_up() -> None:
    """Switch on the loopback device of the present network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS
