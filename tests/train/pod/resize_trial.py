"""Takes one of two hosts away and gives it back: does a run with --mesh.min-workers 1 shrink, go on and grow back?

    python -m tests.train.pod.resize_trial

By hand, a few minutes. Every loss of every step is compared with the run of two workers that nothing interrupted: the
same rows in the same order give the same losses within 1e-5 whatever the number of workers. Prints what came of it as
JSON. So far the run waited for its second host instead of going on with one: see docs/log.md.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lemur_ray.weights.checkpoints import commits
from tests.train.conftest import write_corpus
from tests.train.pod.pods import driver, pods
from tests.train.resume_trial import RECIPE, losses, steps_done, unbroken

PATIENCE_S = 300


def world_sizes(out: Path) -> list[int]:
    """Workers of every attempt so far."""
    path = out / "goodput.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    return [record["world_size"] for record in records if "world_size" in record]


def wait(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.05)


def main() -> int:
    home = Path(tempfile.mkdtemp(prefix="lt-", dir="/tmp"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(home / "compiled")
    corpus, out = write_corpus(home / "corpus"), home / "elastic"
    flags = [*RECIPE, "--train.checkpoint-every-steps", "4", "--mesh.min-workers", "1", "--mesh.resize-check-s", "2"]
    came: dict[str, object] = {}
    with pods() as start:
        pod = start()
        pod.add_host(cpus=3)
        victim = pod.add_host(cpus=3)
        pod.wait_for_hosts(2)
        expected = unbroken(pod, home, corpus)
        process = driver(pod, [*flags, "--corpus", str(corpus), "--out", out.name], home)
        try:
            wait("a first checkpoint", lambda: bool(commits(str(out / "checkpoints"))[0]))
            pod.lose(victim)
            wait("one worker", lambda: world_sizes(out)[-1:] == [1])
            before = steps_done(out)
            wait("two steps of one worker", lambda: steps_done(out) > before + 2)
            pod.add_host(cpus=3)
            came["status"] = process.wait(timeout=PATIENCE_S)
        except AssertionError as error:
            came["error"] = str(error)
        finally:
            process.kill()
            process.wait()
    found = losses(out)
    worst = max(abs(found[step] - expected[step]) for step in found)
    came |= {"world_sizes": world_sizes(out), "steps": len(found), "largest_difference": worst}
    print(json.dumps(came), flush=True)
    good = came.get("status") == 0 and len(found) == len(expected) and worst < 1e-5 and 1 in world_sizes(out)
    if good:
        shutil.rmtree(home)
    else:
        print(f"logs and runs are in {home}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
