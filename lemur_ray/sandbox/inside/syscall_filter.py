"""The seccomp filter for code of the policy, as a BPF program.

A deny list of calls that can leave namespaces (mount, unshare, open_by_handle_at), inspect other processes (ptrace,
process_vm_*), reach kernel subsystems (bpf, perf, userfaultfd, keys, io_uring), or change the machine (reboot, clocks,
modules). Sockets are allowed by family: AF_VSOCK, for one, belongs to no network namespace."""

import ctypes
import errno
import platform
import struct

from lemur_ray.sandbox.inside import kernel

# name: (x86_64, aarch64); -1 where the architecture has none. Source: the kernel's syscall tables.
REFUSED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225),
    "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, -1), "ioperm": (173, -1), "move_pages": (279, 239),
    "fanotify_init": (300, 262), "lookup_dcookie": (212, 18),
}  # fmt: skip
UNCOUNTED_MEMORY = {
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190),
}  # fmt: skip
"""Calls that allocate memory of no process; refused if memory is summed over processes and not by a cgroup."""
SETSOCKOPT = (54, 208)
SOL_SOCKET = 1
BUFFER_SIZES = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF and the two that root has; a socket's memory is counted likewise
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
CLONE, CLONE3, IOCTL, SOCKET = (56, 220), (435, 435), (16, 29), (41, 198)
NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* flag that clone takes
FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
TIOCSTI, TIOCLINUX = 0x5412, 0x541C

_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def program(machine: str, count_all_memory: bool, tracing: bool = False) -> bytes:
    """The filter's BPF program, as bytes for ``prctl``, for an architecture as ``platform.machine()`` names it. Raises
    ValueError for an unknown one. ``count_all_memory``: also refuse calls that allocate memory outside of processes
    (``UNCOUNTED_MEMORY``); ``tracing``: allow ptrace."""
    if machine not in ARCHITECTURES:
        raise ValueError(f"no system call table for {machine!r}: expected one of {', '.join(ARCHITECTURES)}")
    audit, column = ARCHITECTURES[machine]
    refused = {**REFUSED, **(UNCOUNTED_MEMORY if count_all_memory else {})}
    if tracing:  # safe: since Linux 4.8 the filter sees a call after its tracer may have changed it
        del refused["ptrace"]
    eperm, nosys = _instruction(_RET, _ERRNO | errno.EPERM), _instruction(_RET, _ERRNO | errno.ENOSYS)
    allow = _instruction(_RET, _ALLOW)
    lines = [_instruction(_LOAD, 4), _instruction(_JEQ, audit, 1, 0), nosys, _instruction(_LOAD, 0)]
    if machine == "x86_64":
        lines += [_instruction(_JGE, 0x40000000, 0, 1), nosys]  # numbers of the x32 ABI are not in the table
    lines += [_instruction(_JEQ, CLONE3[column], 0, 1), nosys]  # a filter cannot read its flags; libc then uses clone
    for number in sorted(pair[column] for pair in refused.values() if pair[column] >= 0):
        lines += [_instruction(_JEQ, number, 0, 1), eperm]
    lines += [_instruction(_JEQ, CLONE[column], 0, 4), _instruction(_LOAD, 16)]
    lines += [_instruction(_JSET, NEW_NAMESPACES, 0, 1), eperm, allow]
    lines += [_instruction(_JEQ, IOCTL[column], 0, 5), _instruction(_LOAD, 24)]
    lines += [_instruction(_JEQ, TIOCSTI, 1, 0), _instruction(_JEQ, TIOCLINUX, 0, 1), eperm, allow]
    families = [_instruction(_JEQ, family, len(FAMILIES) - at, 0) for at, family in enumerate(FAMILIES)]
    if count_all_memory:
        # Requests for a buffer size are only hints to the kernel, so they are ignored here and reported as granted.
        asked = [_instruction(_JEQ, name, len(BUFFER_SIZES) - at, 0) for at, name in enumerate(BUFFER_SIZES)]
        lines += [_instruction(_JEQ, SETSOCKOPT[column], 0, len(asked) + 5), _instruction(_LOAD, 24)]
        lines += [_instruction(_JEQ, SOL_SOCKET, 0, len(asked) + 1), _instruction(_LOAD, 32), *asked, allow]
        lines += [_instruction(_RET, _ERRNO)]
    denied = _instruction(_RET, _ERRNO | errno.EAFNOSUPPORT)
    lines += [_instruction(_JEQ, SOCKET[column], 0, len(FAMILIES) + 2), _instruction(_LOAD, 16), *families, denied]
    lines += [allow]
    return b"".join(lines)


def install(count_all_memory: bool, tracing: bool = False) -> None:
    """Apply the filter to this process and its descendants, for good. ``count_all_memory``: also refuse memory outside
    of processes; ``tracing``: allow ptrace. Raises OSError if the kernel refuses it."""
    code = program(platform.machine(), count_all_memory, tracing)
    held = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(held))
    buffer = ctypes.create_string_buffer(header, len(header))
    kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.SET_SECCOMP, 2, ctypes.c_void_p(ctypes.addressof(buffer)))
