"""A quick check of a backend's guarantees on this machine: attacks that must fail, harmless commands that must work.

The full suite is ``tests/attacks``; this takes seconds and needs the library alone
(``python -m lemur_ray.sandbox.selfcheck``)."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lemur_ray.sandbox.sandbox import Limits, Sandbox, SandboxError, SandboxSpec, backend_named

LIMITS = Limits(time_s=5.0, memory_bytes=256 * 2**20, processes=32, disk_bytes=8 * 2**20, inodes=1000)


@dataclass(frozen=True)
class Finding:
    """Result of one check. ``held``: whether the guarantee holds; ``error``: what was raised instead; ``excused``: why
    the backend does not promise this guarantee here, empty if it does."""

    name: str
    held: bool
    error: str = ""
    excused: str = ""


def _sh(box: Sandbox, script: str) -> str:
    """Standard output of a script."""
    return box.exec(["bash", "-c", script], limits=Limits(time_s=5.0)).out.strip()


def _prints(script: str, *expected: str) -> Callable[[Sandbox], bool]:
    return lambda box: _sh(box, script) in expected


def _fails(script: str, message: str) -> Callable[[Sandbox], bool]:
    return lambda box: message in box.exec(["bash", "-c", script]).err


_FULL = "No space left"
_disk_is_full = _fails("cat /dev/zero > a; cat /dev/zero > b", _FULL)
CHECKS: list[tuple[str, str, Callable[[Sandbox], bool]]] = [
    ("a command runs", "", _prints("echo $((6 * 7))", "42")),
    ("python runs", "", lambda box: box.exec(["python3", "-c", "print('x' * 3)"]).out == "xxx\n"),
    ("processes are limited", "pids_limit", _fails("for i in $(seq 99); do sleep 9 & done", "unavailable")),
    ("nothing is left of a step", "", _prints("ls -d /proc/[0-9]* | wc -l", "3", "4")),
    ("one process cannot take all memory", "", _fails("python3 -c \"'a' * (64 << 30)\"", "MemoryError")),
    ("disk is limited", "disk_quota", lambda box: _disk_is_full(box) or int(_sh(box, "du -sm /work | cut -f1")) <= 9),
    ("the number of files is limited", "inode_quota", _fails("for i in $(seq 2000); do : > f$i; done", _FULL)),
    ("time is limited", "", lambda box: box.exec(["sleep", "60"], limits=Limits(time_s=1.0)).timed_out),
    ("output is limited", "", lambda box: box.exec(["yes"]).truncated),
    (
        "no network",
        "network_none",
        _prints("timeout 2 bash -c 'echo > /dev/tcp/8.8.8.8/53' 2>/dev/null && echo open", ""),
    ),
    ("the first process cannot be looked into", "", _prints("cat /proc/1/environ 2>/dev/null", "")),
    ("no tracing", "seccomp", _prints("python3 -c 'import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))'", "-1")),
    ("no way to more rights", "", _prints("unshare -Ur id -u 2>/dev/null", "")),
    ("the system is read-only", "", _prints("touch /usr/x 2>/dev/null && echo wrote", "")),
]


def check(backend: str = "bwrap") -> Iterator[Finding]:
    """Run each check in one sandbox of the backend ("bwrap" or "docker"), reset before each, and yield its result;
    last, whether a reset restores the files. Takes seconds. Raises SandboxUnavailable if none can be opened."""
    made = backend_named(backend)
    box = made.open(SandboxSpec(limits=LIMITS, run="selfcheck"))
    try:
        clean = box.snapshot()
        for name, guarantee, holds in CHECKS:
            box.reset()
            try:
                held, error = holds(box), ""
            except (SandboxError, ValueError) as raised:
                held, error = False, str(raised)
            given = not guarantee or getattr(made.capabilities, guarantee)
            yield Finding(name, held, error, "" if given else made.capabilities.reasons[guarantee])
        box.write("left", b"behind")
        box.reset()
        yield Finding("a reset brings back the tree", box.snapshot() == clean)
    finally:
        box.close()


def main(argv: list[str] | None = None) -> int:
    """Check the backend named by the first argument (default "bwrap") and print a line per check. Returns 0 if every
    promised guarantee holds, else 1."""
    words = sys.argv[1:] if argv is None else argv
    started, failed = time.monotonic(), 0
    for finding in check(words[0] if words else "bwrap"):
        state = "held" if finding.held else f"not given: {finding.excused}" if finding.excused else "BROKEN"
        failed += not finding.held and not finding.excused
        print(f"{state:8} {finding.name}{'  ' + finding.error if finding.error else ''}")
    print(f"{failed} broken, {time.monotonic() - started:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
