"""Rows 19 and 39: daemons, and a harness that is killed in the middle of a step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lemur_ray.sandbox.backends import slots
from lemur_ray.sandbox.sandbox import Sandbox
from tests.attacks.arena import bash, processes, records_of

ROOT = Path(__file__).resolve().parents[2]

DAEMONS = [
    "nohup sh -c 'sleep SECONDS; touch /tmp/late' >/dev/null 2>&1 &",
    "setsid sh -c '(sleep SECONDS; touch /tmp/late) &' &",
    "python3 -c 'import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    "
    'time.sleep(SECONDS); open("/tmp/late", "w")\n  os._exit(0)\'',
    "(trap '' HUP TERM; sleep SECONDS; touch /tmp/late) & disown",
]


@pytest.mark.parametrize("daemon", DAEMONS)
def test_row_19_a_daemon_does_not_delay_the_step_and_dies_with_it_or_at_reset(box: Sandbox, daemon: str) -> None:
    started = time.monotonic()
    kept = box.exec(["bash", "-c", daemon.replace("SECONDS", "300") + "\necho started"], keep_background=True)
    assert kept.out.endswith("started\n")
    assert time.monotonic() - started < 30.0
    assert processes(box) >= 1, "it may live within the episode"
    box.reset()
    assert processes(box) == 0
    assert "started" in bash(box, daemon.replace("SECONDS", "1") + "\necho started").out
    assert processes(box) == 0, "without keep_background nothing is left after the step"
    bash(box, "rm -f /tmp/late")  # on a busy machine the step itself may take a second
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        assert bash(box, "ls /tmp/late").exit_code != 0, "a marker appeared late"


HARNESS = """
import sys
from lemur_ray.sandbox.sandbox import SandboxSpec, open_sandbox
from tests.attacks.arena import keeper_pid
sandbox = open_sandbox(SandboxSpec(run=sys.argv[2]), sys.argv[1])
print(keeper_pid(sandbox), flush=True)
sandbox.exec(["bash", "-c", "setsid sleep 1000 & sleep 1000"])
"""


def test_row_39_a_harness_killed_in_a_step_leaves_no_process_and_no_slot(backend: str) -> None:
    run = f"doomed-{os.getpid()}"
    command = [sys.executable, "-c", HARNESS, backend, run]
    harness = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert harness.stdout
    pid = int(harness.stdout.readline())
    start = slots.start_time(pid)
    assert start is not None
    (held,) = records_of(run)
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    harness.stdout.close()
    deadline = time.monotonic() + 60.0
    while slots.is_running(pid, start):
        assert time.monotonic() < deadline, "the sandbox outlives its harness"
    while records_of(run):  # where another process opens a sandbox just now, that one clears it
        assert time.monotonic() < deadline, "its slot is still taken"
        slots.reap()
    assert not slots.is_running(*held.get("process", (pid, start)))
    assert not any(Path(group).exists() for group in held.get("cgroups", []))
