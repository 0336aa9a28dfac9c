"""What tests of sandboxes share: the backends, limits, and steps that are timed from outside."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from lemur_ray.sandbox.backends import docker_engine, docker_image, slots
from lemur_ray.sandbox.backends.bwrap import BwrapHousing
from lemur_ray.sandbox.sandbox import ExecResult, Limits, Sandbox, SandboxUnavailable

BACKENDS = ("bwrap", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow]))
"""Every backend runs the whole suite."""
STEP_S = 5.0
LIMITS = Limits(time_s=STEP_S, memory_bytes=512 * 2**20, processes=64, disk_bytes=32 * 2**20, inodes=4000)


def ready(backend: str) -> None:
    """Fail with what to install where the backend should be there, skip with the reason where it need not be.

    Builds the image of the Docker sandbox where the engine does not have it, which takes longer than a step may."""
    if backend == "bwrap":
        assert shutil.which("bwrap"), "bubblewrap is missing: apt-get install -y bubblewrap"
    elif reason := why_no_engine():
        assert not os.environ.get("LEMUR_DOCKER"), f"LEMUR_DOCKER promises a Docker engine, but: {reason}"
        pytest.skip(reason)
    else:
        docker_image.ensure()


def why_no_engine() -> str:
    """Why no Docker engine can be used here; empty where one can."""
    try:
        with docker_engine.client("a greeting", 10.0) as api:
            api.ping()
    except SandboxUnavailable as error:
        return str(error)
    return ""


def keeper_pid(box: Sandbox) -> int:
    """The keeper of a sandbox, as this machine numbers it."""
    housing: Any = box._housing  # type: ignore[attr-defined]
    if isinstance(housing, BwrapHousing):
        assert housing.process
        return children(housing.process.pid)[0]
    with docker_engine.client("to look at a container") as api:
        return int(api.inspect_container(housing.container)["State"]["Pid"])


def processes(box: Sandbox) -> int:
    """How many processes there are besides the first and the one that counts, the dead that nobody collected too."""
    seen = box.exec(["bash", "-c", "echo /proc/[0-9]*"])
    assert seen.ok, seen
    return len(seen.out.split()) - 2


def children(pid: int) -> list[int]:
    return [int(number) for number in slots.children(pid)]


def in_its_next_step(box: Sandbox, what: Callable[[], object]) -> None:
    """``what`` is done, in a thread, as soon as a command runs in the sandbox."""
    first = children(keeper_pid(box))[0]

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not children(first) and time.monotonic() < deadline:
            time.sleep(0.005)
        what()

    threading.Thread(target=wait, daemon=True).start()


def records_of(run: str) -> list[dict[str, Any]]:
    """What the slots say of the sandboxes of a run, the living and the dead."""
    found = []
    for path in slots.folder().glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # given back or written just now
            if path.name.isdigit() and (record := json.loads(path.read_text() or "{}")).get("run") == run:
                found.append(record)
    return found


def bash(box: Sandbox, script: str, **more: Any) -> ExecResult:
    """Run a script; whatever it does, the step ends at most 2 s after its limit."""
    return timed(box, ["bash", "-c", script], **more)


def python(box: Sandbox, code: str, **more: Any) -> ExecResult:
    return timed(box, ["python3", "-c", code], **more)


def timed(box: Sandbox, argv: list[str], **more: Any) -> ExecResult:
    """A step the machine starved or held up is tried again, as the runtime would, at most twice."""
    limit_s = more["limits"].time_s if more.get("limits") else box.spec.limits.time_s
    for _ in range(3):
        started = time.monotonic()
        result = box.exec(argv, **more)
        took_s = time.monotonic() - started
        assert result.alive, result
        if result.blame != "infra" and took_s <= limit_s + 2.0:
            break
    assert took_s <= limit_s + 2.0, f"the step outlived its limit of {limit_s} s: {took_s:.1f} s"
    return result
