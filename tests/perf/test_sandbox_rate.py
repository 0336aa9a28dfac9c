"""Bash steps, resets and starts of a bubblewrap sandbox per second, one client; run by name, on a quiet machine.

``python -m pytest tests/perf/test_sandbox_rate.py -s``
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from lemur_ray.sandbox.python_repl import PythonSession
from lemur_ray.sandbox.sandbox import SandboxSpec, open_sandbox


def seconds(action: Callable[[], object], number: int) -> list[float]:
    """Wall seconds of each of ``number`` runs."""
    taken = []
    for _ in range(number):
        started = time.perf_counter()
        action()
        taken.append(time.perf_counter() - started)
    return taken


def test_bash_steps_resets_and_starts_reach_their_rates(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for number in range(35):  # the size of an InterCode file system
        (tree / f"d{number % 5}").mkdir(parents=True, exist_ok=True)
        (tree / f"d{number % 5}/f{number}.txt").write_text("line of text\n" * 600)
    spec = SandboxSpec(trees={"/testbed": tree}, run="rate")
    sandbox = open_sandbox(spec)
    python = PythonSession(sandbox)
    try:
        python.run("import os")
        step = seconds(lambda: sandbox.exec(["bash", "-c", "ls /testbed | wc -l"], cwd="/"), 60)
        persistent = seconds(lambda: python.run("len(os.listdir('/testbed'))"), 60)
        hashed = seconds(sandbox.snapshot, 20)
        reset = seconds(sandbox.reset, 40)
    finally:
        sandbox.close()
    start = seconds(lambda: open_sandbox(spec).close(), 10)
    for name, taken in (
        ("exec", step),
        ("cell", persistent),
        ("hash", hashed),
        ("reset", reset),
        ("open+close", start),
    ):
        print(f"{name:10} median {statistics.median(taken) * 1000:6.1f} ms, {len(taken) / sum(taken):6.1f} a second")
    assert len(step) / sum(step) >= 25.0, "bubblewrap Bash at least 25 steps/s"
    assert len(reset) / sum(reset) >= 12.0, "at least 12 resets/s"
    assert statistics.median(step) <= 0.1
    assert statistics.median(start) <= 0.5
