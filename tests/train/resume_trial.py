"""Kills runs of two workers at random steps and counts how many go on bit for bit. By hand; about a minute a trial.

    python -m tests.train.resume_trial --seeds 10 --kinds worker all driver host

worker: kill -9 of one worker; all: of every one at once; driver: of the driver, then the same command again; host: of
everything on a fake host, which a new one replaces. Every loss of every step is compared with the run that nothing
interrupted, on the same cluster. Prints one JSON line per trial and one with the counts last.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.train.conftest import write_corpus
from tests.train.pod.pods import Pod, driver, pods

STEPS = 40
RECIPE = (
    "nano --model.vocab-size 320 --model.num-layers 2 --model.dim 32 --model.ffn-dim 64 --model.num-heads 2 "
    "--model.num-kv-heads 1 --model.head-dim 16 --model.max-seq-len 64 --data.seq-len 64 --optimizer.warmup-steps 2 "
    f"--train.rows-per-step 4 --train.log-every-steps 1 --train.steps {STEPS} --train.checkpoint-every-steps 8 "
    "--train.eval-rows 0 --mesh.num-workers 2 --mesh.cpus-per-worker 2"
).split()
KINDS = ("worker", "all", "driver", "host")
PATIENCE_S = 900


def losses(out: Path) -> dict[int, float]:
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    found = {record["step"]: record["loss"] for record in records}
    assert len(found) == len(records), "a step has two lines"
    return found


def steps_done(out: Path) -> int:
    metrics = out / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def at_step(out: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Wait until a run has come so far."""
    deadline = time.monotonic() + PATIENCE_S
    while steps_done(out) < step:
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"the run never came to step {step}: exit status {process.returncode}")
        time.sleep(0.001)


def strike(kind: str, out: Path, process: subprocess.Popen[str], pod: Pod, draw: random.Random) -> None:
    if kind == "driver":
        process.kill()
        process.wait()
        return
    if kind == "host":
        pod.lose(draw.choice(pod.hosts))
        pod.add_host(cpus=3)
        return
    ranks = [0, 1] if kind == "all" else [draw.randrange(2)]
    for pid in [int((out / f".rank{rank}.lock").read_text()) for rank in ranks]:
        os.kill(pid, signal.SIGKILL)


def unbroken(pod: Pod, home: Path, corpus: Path) -> dict[int, float]:
    """Losses of the run that nothing interrupts."""
    whole = driver(pod, [*RECIPE, "--corpus", str(corpus), "--out", "whole"], home)
    assert whole.wait(timeout=PATIENCE_S) == 0, (home / "log.txt").read_text()[-3000:]
    return losses(home / "whole")


def trial(kind: str, seed: int, pod: Pod, home: Path, corpus: Path, expected: dict[int, float]) -> dict[str, object]:
    """One run with one kill; what came of it."""
    draw = random.Random(f"{kind} {seed}")
    out, began = home / f"{kind}-{seed}", time.monotonic()
    arguments = [*RECIPE, "--corpus", str(corpus), "--out", out.name]
    step = draw.randrange(1, STEPS - 8)
    process = driver(pod, arguments, home)
    try:
        at_step(out, step, process)
        strike(kind, out, process, pod, draw)
        hit = steps_done(out)
        if kind == "driver":
            process = driver(pod, arguments, home)
        status = process.wait(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    found = losses(out)
    result = json.loads((out / "result.json").read_text()) if status == 0 else {}
    exact = found == expected and not result.get("replays_that_differ")
    shutil.rmtree(out, ignore_errors=exact)
    return {
        "kind": kind, "seed": seed, "killed_at": hit, "resumed_at": result.get("first_step"), "status": status,
        "steps": len(found), "replayed": result.get("goodput", {}).get("replayed_steps"), "exact": exact,
        "goodput": result.get("goodput"), "took_s": round(time.monotonic() - began, 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="lt-", dir="/tmp"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(home / "compiled")  # every trial runs the same program
    corpus = write_corpus(home / "corpus")
    counts = {kind: [0, 0] for kind in options.kinds}
    with pods() as start:
        pod = start()
        for _ in range(2):
            pod.add_host(cpus=3)
        pod.wait_for_hosts(2)
        expected = unbroken(pod, home, corpus)
        for seed in range(options.seeds):
            for kind in options.kinds:
                try:
                    came = trial(kind, seed, pod, home, corpus, expected)
                except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
                    came = {"kind": kind, "seed": seed, "exact": False, "error": str(error)}
                counts[kind][0] += bool(came["exact"])
                counts[kind][1] += 1
                print(json.dumps(came), flush=True)
                pod.wait_for_hosts(2)
    print(json.dumps({"exact": {kind: f"{good} of {all_}" for kind, (good, all_) in counts.items()}}), flush=True)
    if all(good == all_ for good, all_ in counts.values()):
        shutil.rmtree(home)
        return 0
    print(f"logs and runs are in {home}", flush=True)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
