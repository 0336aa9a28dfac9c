"""What tests of sandboxes share: the backends, limits, and steps that are timed from outside."""

from __future__ import annotations

import os
import shutil
import time
from typing import Any

import pytest

from lemur_ray.sandbox import engine
from lemur_ray.sandbox.sandbox import ExecResult, Limits, Sandbox

BACKENDS = ("bwrap", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow]))
"""Every backend runs the whole suite."""
STEP_S = 5.0
LIMITS = Limits(time_s=STEP_S, memory_bytes=512 * 2**20, processes=64, disk_bytes=32 * 2**20, inodes=4000)


def ready(backend: str) -> None:
    """Fail with what to install where the backend should be there, skip with the reason where it need not be."""
    if backend == "bwrap":
        assert shutil.which("bwrap"), "bubblewrap is missing: apt-get install -y bubblewrap"
    elif reason := engine.why_not():
        assert not os.environ.get("LEMUR_DOCKER"), f"LEMUR_DOCKER promises a Docker engine, but: {reason}"
        pytest.skip(reason)


def keeper_pid(box: Sandbox) -> int:
    """The keeper of a sandbox, as this machine numbers it."""
    return int(box._housing.keeper_pid)  # type: ignore[attr-defined]


def bash(box: Sandbox, script: str, **more: Any) -> ExecResult:
    """Run a script; whatever it does, the step ends at most 2 s after its limit."""
    return timed(box, ["bash", "-c", script], **more)


def python(box: Sandbox, code: str, **more: Any) -> ExecResult:
    return timed(box, ["python3", "-c", code], **more)


def timed(box: Sandbox, argv: list[str], **more: Any) -> ExecResult:
    """A step the machine starved is tried again, as the runtime would, at most twice."""
    limit_s = more["limits"].time_s if more.get("limits") else box.spec.limits.time_s
    for _ in range(3):
        started = time.monotonic()
        result = box.exec(argv, **more)
        took_s = time.monotonic() - started
        assert result.alive, result
        if result.blame != "infra":
            break
    assert took_s <= limit_s + 2.0, f"the step outlived its limit of {limit_s} s: {took_s:.1f} s"
    return result
