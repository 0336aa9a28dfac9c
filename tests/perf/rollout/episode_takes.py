"""What an episode's sandbox takes of its host: memory while it waits for a model, CPU of its begin and of a turn.

The numbers behind ``lemur_ray/benchmarks/resource_request.py``; of a browser see ``webarena_rate.py``.
A JSON line for each kind.

    python -m tests.perf.rollout.episode_takes [--sandboxes 4]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sysconfig
from collections.abc import Callable
from pathlib import Path

from lemur_ray.sandbox.python_repl import PythonSession
from lemur_ray.sandbox.sandbox import Sandbox, SandboxSpec, open_sandbox
from tests.e2e.processes import descendants

TURNS = 5
PACKAGES = "/packages"
Turn = Callable[[Sandbox], Callable[[int], object]]


def commands(sandbox: Sandbox) -> Callable[[int], object]:
    """A shell that looks about and writes a file."""
    script = "ls -la / | wc -l; seq 1 20000 | sort -R | head -3; echo {} >> notes; cat notes"
    return lambda turn: sandbox.exec(["bash", "-c", script.format(turn)])


def programs(sandbox: Sandbox) -> Callable[[int], object]:
    """A Python that runs a short program and its tests, as of HumanEval."""
    script = "def f(n):\n    return sum(range(n))\n\nassert f({}) >= 0\nprint(f(10))\n"
    return lambda turn: sandbox.exec(["python3", "-c", script.format(turn)])


def cells(sandbox: Sandbox) -> Callable[[int], object]:
    """A Python that lives from turn to turn and has imported what is large."""
    session = PythonSession(sandbox, packages=(PACKAGES,))
    session.run("import numpy, pandas\ndata = pandas.DataFrame(numpy.random.rand(1000, 8))", 120.0)
    return lambda turn: session.run(
        f"print(data.describe()); a = numpy.ones((300, 300)) @ numpy.ones((300, {turn + 1}))"
    )


def pss_mb() -> float:
    """Of everything below this process, what is shared counted in part."""
    total = 0
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                total += int(line.split()[1]) if line.startswith("Pss:") else 0
    return total / 1024


def tree_mb(sandboxes: list[Sandbox]) -> float:
    """What lies in their trees, which is memory too."""
    return sum(float(one.exec(["du", "-sm", "/work", "/tmp"]).out.split()[0]) for one in sandboxes)


def cpu_s() -> float:
    """Of this process and of all below it that have ended or run."""
    found = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    total = sum(one.ru_utime + one.ru_stime for one in found)
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(number) for number in stat[11:15]) / os.sysconf("SC_CLK_TCK")
    return total


def measure(name: str, begin: Turn, number: int) -> None:
    spec = SandboxSpec(mounts={PACKAGES: Path(sysconfig.get_path("purelib"))}, run="takes")
    before_mb, began_s = pss_mb(), cpu_s()
    sandboxes = [open_sandbox(spec) for _ in range(number)]
    try:
        turns = [begin(sandbox) for sandbox in sandboxes]
        ready_s, waiting_mb = cpu_s(), pss_mb()
        for turn in range(TURNS):
            for one in turns:
                one(turn)
        found = {
            "begin_cpu_s": (ready_s - began_s) / number,
            "turn_cpu_s": (cpu_s() - ready_s) / number / TURNS,
            "waiting_mb": (waiting_mb - before_mb) / number,
            "after_turns_mb": (pss_mb() - before_mb) / number,
            "files_mb": tree_mb(sandboxes) / number,
        }
    finally:
        for sandbox in sandboxes:
            sandbox.close()
    print(json.dumps({"kind": name, **{key: round(value, 3) for key, value in found.items()}}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sandboxes", type=int, default=4)
    asked = parser.parse_args()
    for begin in (commands, programs, cells):
        measure(begin.__name__, begin, asked.sandboxes)


if __name__ == "__main__":
    main()
