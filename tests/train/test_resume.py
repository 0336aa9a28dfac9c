"""Exact resume on a cluster of its own: the driver, or everything, is killed, and the same command is run again.

Minutes long. The quick variants are in test_loop.py (no Ray) and test_trainer.py (a killed worker).
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from lemur_ray.config import Recipe
from lemur_ray.host.ports import free_port
from lemur_ray.recipes import with_vocabulary
from lemur_ray.train.job_arguments import TrainingJob, parse_job
from tests.e2e.processes import command_line, descendants, parents, wait_while_it_runs
from tests.train.pod.pods import PATIENT_RAY
from tests.weights.whole_models import params_of

ROOT = Path(__file__).resolve().parents[2]
Losses = Callable[[Path], dict[int, float]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RECIPE = (  # noqa: SIM905
    "nano --model.vocab-size 320 --model.num-layers 2 --model.dim 32 --model.ffn-dim 64 --model.num-heads 2 "
    "--model.num-kv-heads 1 --model.head-dim 16 --model.max-seq-len 64 --data.seq-len 64 --optimizer.warmup-steps 2 "
    "--train.rows-per-step 2 --train.log-every-steps 1"
).split()


class Head:
    """A private Ray head, ended by the process ids of what it started."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="lh-", dir="/tmp")
        self.address = f"127.0.0.1:{free_port()}"
        ports = ("dashboard-agent-grpc-port", "dashboard-agent-listen-port", "metrics-export-port")
        command = [sys.executable, "-c", PATIENT_RAY, "start", "--head", "--block", "--num-cpus=3"]
        command += ["--include-dashboard=false", "--node-ip-address=127.0.0.1", f"--port={self.address.split(':')[1]}"]
        command += [f"--{name}={free_port()}" for name in (*ports, "runtime-env-agent-port", "ray-client-server-port")]
        command += [f"--temp-dir={self.folder}", "--object-store-memory=200000000", "--disable-usage-stats"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder)

    def processes(self) -> list[int]:
        """The head's process, everything started with its folder, and all their descendants."""
        found = {self.process.pid} | {pid for pid in parents() if self.folder in command_line(pid)}
        return sorted(found.union(*map(descendants, found)) - {os.getpid()})

    def kill(self) -> None:
        """SIGKILL to all of it, as when the machine goes down."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it went down with its parent
        self.process.wait()


@pytest.fixture
def heads() -> Iterator[Callable[[], Head]]:
    started: list[Head] = []

    def start() -> Head:
        started.append(Head())
        return started[-1]

    yield start
    for head in started:
        head.kill()


@pytest.fixture
def pretrain() -> Iterator[Callable[[Head, list[str], Path], subprocess.Popen]]:
    """Starts jobs/pretrain.py on a head; whatever still runs at the end of the test is killed."""
    started: list[subprocess.Popen] = []

    def start(head: Head, arguments: list[str], home: Path) -> subprocess.Popen:
        env = {**os.environ, "RAY_ADDRESS": head.address, "LEMUR_HOME": str(home)}
        command = [sys.executable, str(ROOT / "jobs" / "pretrain.py"), *arguments]
        with open(home / "log.txt", "a") as log:
            started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True, cwd=home))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def last_json(process: subprocess.Popen) -> dict:
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out[-3000:]
    result: dict = json.loads(out.strip().splitlines()[-1])
    return result


@pytest.mark.parametrize("victim", [pytest.param("driver", marks=pytest.mark.sweep), "cluster"])
def test_after_a_kill_the_same_command_goes_on_bit_for_bit(
    victim: str,
    tmp_path: Path,
    corpus: Path,
    heads: Callable[[], Head],
    pretrain: Callable,
    run_here: Callable,
    read_losses: Losses,
) -> None:
    flags = [*RECIPE, "--train.steps", "300", "--train.checkpoint-every-steps", "20"]
    arguments = [*flags, "--corpus", str(corpus), "--out", "run"]
    run_here(with_vocabulary(parse_job(TrainingJob, flags, prog="p").recipe, 320), tmp_path / "whole")
    head = heads()
    first = pretrain(head, arguments, tmp_path)
    at = random.Random(victim).randrange(30, 150)
    lines = tmp_path / "run" / "metrics.jsonl"
    wait_while_it_runs(
        first, lambda: lines.exists() and lines.read_bytes().count(b"\n") >= at, 400, tmp_path / "log.txt"
    )
    if victim == "driver":
        first.kill()
    else:
        head.kill()
        first.kill()
        head = heads()
    first.communicate()
    result = last_json(pretrain(head, arguments, tmp_path))
    assert 0 < result["first_step"] < 300
    assert result["replays_that_differ"] == []
    assert read_losses(tmp_path / "run") == read_losses(tmp_path / "whole")
    assert last_json(pretrain(head, arguments, tmp_path))["already_finished"]


@pytest.mark.sweep  # two clusters; the slow tier ends a stage by an exception and kills the cluster of a run
def test_a_stage_killed_with_its_cluster_ends_as_one_run_bit_for_bit(
    tmp_path: Path, corpus: Path, heads: Callable[[], Head], pretrain: Callable, run_here: Callable, read_losses: Losses
) -> None:
    def recipe(flags: list[str]) -> Recipe:
        return with_vocabulary(parse_job(TrainingJob, flags, prog="p").recipe, 320)

    every = [*RECIPE, "--train.checkpoint-every-steps", "2", "--train.eval-rows", "0"]
    decays = [*every, *f"--train.steps 150 --optimizer.schedule wsd --optimizer.decay-fraction {50 / 150}".split()]
    run_here(recipe(decays), tmp_path / "straight")
    run_here(recipe([*every, "--train.steps", "100", "--optimizer.schedule", "constant"]), tmp_path / "parent")
    arguments = [*decays, "--resume-from", "parent", "--corpus", str(corpus), "--out", "stage"]
    head, lines = heads(), tmp_path / "stage" / "metrics.jsonl"
    first = pretrain(head, arguments, tmp_path)
    wait_while_it_runs(
        first, lambda: lines.exists() and lines.read_bytes().count(b"\n") >= 5, 400, tmp_path / "log.txt"
    )
    os.kill(int((tmp_path / "stage" / ".rank0.lock").read_text()), signal.SIGKILL)  # first: it has 45 short steps left
    head.kill()
    first.kill()
    first.communicate()
    result = last_json(pretrain(heads(), arguments, tmp_path))
    assert 100 < result["first_step"] < 150
    assert result["replays_that_differ"] == []
    assert {**read_losses(tmp_path / "parent"), **read_losses(tmp_path / "stage")} == read_losses(tmp_path / "straight")
    assert jax.tree.all(jax.tree.map(np.array_equal, *(params_of(tmp_path / name) for name in ("straight", "stage"))))


@pytest.mark.sweep  # the run that loses a host compares every step of two workers with one device
def test_two_workers_see_the_same_rows_and_losses_as_one(
    tmp_path: Path, corpus: Path, heads: Callable[[], Head], pretrain: Callable, run_here: Callable, read_losses: Losses
) -> None:
    flags = [*RECIPE, "--train.steps", "12"]
    run_here(with_vocabulary(parse_job(TrainingJob, flags, prog="p").recipe, 320), tmp_path / "one")
    arguments = [*flags, "--mesh.num-workers", "2", "--corpus", str(corpus), "--out", "two"]
    result = last_json(pretrain(heads(), arguments, tmp_path))
    assert (result["world_size"], result["devices"]) == (2, 2)
    one, two = read_losses(tmp_path / "one"), read_losses(tmp_path / "two")
    assert one.keys() == two.keys()
    for step, loss in one.items():
        assert two[step] == pytest.approx(loss, abs=1e-5)
