"""The seccomp profile of pods with environments: as tight as the sandbox allows, tried on this kernel as a user."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.checking.documents import read
from lemur_ray.sandbox.inside import syscall_filter

ROOT = Path(__file__).resolve().parents[2]
SETUP = {"mount", "umount2", "pivot_root", "unshare", "chroot", "sethostname", "ptrace"}
"""Calls with which bubblewrap makes a sandbox, and with which steps are traced."""
IN_SANDBOX = (
    "bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs",
    "/tmp", "--hostname", "sandbox", "true",
)  # fmt: skip
UNDER_FILTER = """
import ctypes, os, struct, sys
from lemur_ray.sandbox.inside import kernel
code = bytes.fromhex(sys.argv[1])
held = ctypes.create_string_buffer(code, len(code))
header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(held))
buffer = ctypes.create_string_buffer(header, len(header))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1)
kernel.prctl(kernel.SET_SECCOMP, 2, ctypes.c_void_p(ctypes.addressof(buffer)))
os.execvp(sys.argv[2], sys.argv[2:])
"""


def profile() -> dict[str, list[str]]:
    """Names of calls by what the profile does with them."""
    config, _ = read(ROOT / "cluster/around/seccomp.yaml")
    rules = json.loads(config.value["data"]["sandbox.json"])
    assert rules["defaultAction"] == "SCMP_ACT_ALLOW"
    return {rule["action"]: rule["names"] for rule in rules["syscalls"]}


def program(refused: list[str]) -> bytes:
    """The profile as a BPF program, as a container runtime makes it."""
    audit, column = syscall_filter.ARCHITECTURES[platform.machine()]
    eperm = syscall_filter._instruction(0x06, 0x00050000 | errno.EPERM)
    lines = [syscall_filter._instruction(0x20, 4), syscall_filter._instruction(0x15, audit, 1, 0), eperm]
    lines.append(syscall_filter._instruction(0x20, 0))
    for number in [syscall_filter.REFUSED[name][column] for name in refused]:
        lines += [syscall_filter._instruction(0x15, number, 0, 1), eperm] if number >= 0 else []
    return b"".join([*lines, syscall_filter._instruction(0x06, 0x7FFF0000)])


PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
"""One that another user may start."""


def under_filter(refused: list[str], *command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", UNDER_FILTER, program(refused).hex(), *command]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True)


as_a_user = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("bwrap"), reason="becomes another user, and needs bubblewrap"
)


def test_the_profile_refuses_what_the_sandbox_refuses_but_what_makes_a_sandbox() -> None:
    assert set(profile()["SCMP_ACT_ERRNO"]) == set(syscall_filter.REFUSED) - SETUP


@as_a_user
def test_bubblewrap_makes_a_sandbox_under_the_profile_and_not_under_a_tighter_one() -> None:
    refused = profile()["SCMP_ACT_ERRNO"]
    allowed = under_filter(refused, *IN_SANDBOX)
    assert allowed.returncode == 0, allowed.stderr
    for name in ("mount", "umount2", "pivot_root", "unshare", "sethostname"):
        assert under_filter([*refused, name], *IN_SANDBOX).returncode != 0, f"{name} need not be permitted"
    ask = "import ctypes; print(ctypes.CDLL(None).syscall(250, 0, 0, 0, 0))"
    assert under_filter(refused, PYTHON, "-c", ask).stdout.strip() == "-1", "keyctl is refused"


@as_a_user
@pytest.mark.sweep
@pytest.mark.slow
def test_every_guarantee_of_the_sandbox_holds_under_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/tmp")
    checked = under_filter(profile()["SCMP_ACT_ERRNO"], PYTHON, "-m", "lemur_ray.sandbox.selfcheck")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "no tracing" in checked.stdout
