"""A recipe on fake TPU slices and on hosts that come and go: the real job, the real Ray, gloo between the hosts.

Minutes long. What can be said without a cluster is in test_slices.py and test_trainer.py; kills of workers and hosts by
the dozen are in resume_trial.py, a resize in resize_trial.py, both by hand.
"""

import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lemur_ray.config import MeshConfig
from lemur_ray.recipes import with_vocabulary
from lemur_ray.train.job_arguments import TrainingJob, parse_job
from lemur_ray.train.pod.slices import parse_slice
from lemur_ray.train.run.watchdog import PATIENCE
from lemur_ray.weights.checkpoints import commits
from tests.e2e.processes import wait_while_it_runs
from tests.train.pod.pods import Pod, driver, pods
from tests.train.test_loop import Killed, killed_after
from tests.train.test_resume import RECIPE as TWO_ROWS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Losses = Callable[[Path], dict[int, float]]
RECIPE = [*TWO_ROWS, "--train.rows-per-step", "16", "--train.checkpoint-every-steps", "4", "--train.eval-rows", "0"]
V4 = ["--mesh.use-tpu", "True", "--mesh.accelerator-type", "TPU-V4", "--mesh.topology", "2x2x2"]
CORES = ["--mesh.cpus-per-worker", "2"]
"""A worker takes the two cores of a host of three; what is left feeds it."""


@pytest.fixture
def pod() -> Iterator[Callable[..., Pod]]:
    with pods() as start:
        yield start


@pytest.fixture
def whole(tmp_path: Path, run_here: Callable, read_losses: Losses) -> Callable[[list[str]], dict[int, float]]:
    """Losses of the same recipe in this process, on one device, never interrupted; of the first steps, if not all."""

    def run(flags: list[str], steps: int = 0) -> dict[int, float]:
        recipe = with_vocabulary(parse_job(TrainingJob, flags, prog="p").recipe, 320)
        one_device = dataclasses.replace(recipe, mesh=MeshConfig())
        if not steps:
            run_here(one_device, tmp_path / "whole")
        else:
            with pytest.raises(Killed):
                run_here(one_device, tmp_path / "whole", feed=killed_after(steps + 1))
        losses = read_losses(tmp_path / "whole")
        return {step: loss for step, loss in losses.items() if not steps or step <= steps}

    return run


@pytest.fixture
def job(tmp_path: Path, corpus: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    started: list[subprocess.Popen] = []

    def start(pod: Pod, flags: list[str], **options: object) -> subprocess.Popen:
        arguments = [*flags, "--corpus", str(corpus), "--out", "run"]
        started.append(driver(pod, arguments, tmp_path, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def result_of(process: subprocess.Popen, home: Path) -> dict:
    assert process.wait(timeout=600) == 0, (home / "log.txt").read_text()[-4000:]
    result: dict = json.loads((home / "run" / "result.json").read_text())
    return result


def assert_close(found: dict[int, float], expected: dict[int, float]) -> None:
    assert found.keys() == expected.keys()
    assert max(abs(found[step] - loss) for step, loss in expected.items()) < 1e-5


def steps_done(home: Path) -> int:
    metrics = home / "run" / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


@pytest.mark.sweep  # the slow tier has the mathematics of slices on one host
@pytest.mark.parametrize("slices", [1, 2])
def test_slices_train_as_one_device_does_and_every_worker_stands_where_the_mesh_says(
    slices: int, tmp_path: Path, pod: Callable[..., Pod], job: Callable, whole: Callable, read_losses: Losses
) -> None:
    flags = [*RECIPE, "--train.steps", "8", *V4, "--mesh.num-workers", str(2 * slices), "--mesh.dcn", str(slices)]
    flags += ["--mesh.tp", "2", "--model.num-kv-heads", "2"]
    fake = pod(head_cpus=2)
    one = parse_slice("v4:2x2x2")
    for number in range(slices):
        fake.add_slice(one, f"slice-{number}")
    fake.wait_for_hosts(2 * slices)
    result = result_of(job(fake, flags, devices=one.chips_per_host), tmp_path)
    assert (result["world_size"], result["devices"]) == (2 * slices, 8 * slices)
    assert [worker["process"] for worker in result["workers"]] == list(range(2 * slices))
    assert [worker["slice"] for worker in result["workers"]] == [rank // 2 for rank in range(2 * slices)]
    if slices > 1:
        assert [worker["megascale_slice"] for worker in result["workers"]] == [0, 0, 1, 1]
        assert {worker["megascale_slices"] for worker in result["workers"]} == {2}
    assert_close(read_losses(tmp_path / "run"), whole(flags))


ENDLESS = [
    *RECIPE,
    *CORES,
    "--train.steps",
    "100000",
    "--train.checkpoint-every-steps",
    "1000",
    "--mesh.num-workers",
    "2",
    "--optimizer.peak-lr",
    "1e-4",
    "--train.spike-sigmas",
    "0",
]
"""More steps than fit into a test: the test ends the run once it has seen what it came for.

However many those are, rounding must not grow: at a rate of 3e-3 two meshes are 1e-5 apart after some 200 steps, and
then the guard skips other steps.
"""


def world_sizes(home: Path) -> list[int]:
    """Workers of every attempt so far."""
    path = home / "run" / "goodput.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    return [record["world_size"] for record in records if "world_size" in record]


def assert_steps_agree(home: Path, flags: list[str], whole: Callable, read_losses: Losses) -> None:
    """Every step of the run so far has one line, with the loss of the run on one device."""
    metrics = home / "run" / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[: metrics.read_bytes().rfind(b"\n") + 1])
    found = read_losses(home / "run")
    assert_close(found, whole(flags, steps=max(found)))


@pytest.mark.sweep
def test_a_preempted_host_is_told_beforehand_and_the_run_saves_and_goes_on(
    tmp_path: Path, pod: Callable[..., Pod], job: Callable, whole: Callable, read_losses: Losses
) -> None:
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2

    flags = [*ENDLESS, "--train.checkpoint-every-s", "1000", "--train.max-failures", "0"]
    fake = pod()
    for _ in range(2):
        fake.add_host(cpus=3)
    fake.wait_for_hosts(2)
    process, log = job(fake, flags), tmp_path / "log.txt"
    saved = tmp_path / "run" / "checkpoints"
    wait_while_it_runs(process, lambda: steps_done(tmp_path) >= 5, 300, log)
    # Ray's watcher starts beside the workers, and on a busy machine long after their first steps.
    wait_while_it_runs(process, lambda: ("PreemptionWatcher", "ALIVE") in fake.actors(), 120, log)
    assert not commits(str(saved))[0], "a checkpoint before any notice"
    taken = [node for node in fake.nodes() if node["Resources"].get("CPU", 0) == 3][-1]
    accepted, why_not = GcsClient(address=fake.address).drain_node(
        taken["NodeID"],
        autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION"),
        "the test takes it away",
        int((time.time() + 20) * 1000),
    )
    assert accepted, why_not
    try:
        wait_while_it_runs(process, lambda: bool(commits(str(saved))[0]), 60, log)
    except AssertionError as error:
        raise AssertionError(f"no checkpoint on notice; actors: {fake.actors()}") from error
    at = steps_done(tmp_path)
    assert world_sizes(tmp_path) == [2]
    assert "are taken away" in log.read_text()
    wait_while_it_runs(process, lambda: steps_done(tmp_path) > at, 60, log)
    fake.add_host(cpus=3)  # the replacement
    wait_while_it_runs(process, lambda: world_sizes(tmp_path) == [2, 2], 300, log)
    at = steps_done(tmp_path)
    wait_while_it_runs(process, lambda: steps_done(tmp_path) > at + 20, 300, log)
    process.kill()
    assert_steps_agree(tmp_path, flags, whole, read_losses)


@pytest.mark.sweep
def test_a_collective_that_waits_for_a_worker_which_stands_still_is_ended_and_the_run_goes_on(
    tmp_path: Path, pod: Callable[..., Pod], job: Callable, whole: Callable, read_losses: Losses
) -> None:
    fake = pod()
    for _ in range(2):
        fake.add_host(cpus=3)
    fake.wait_for_hosts(2)
    # Ray's own question whether a worker answers, which would find it, too, comes too late here.
    patience = {PATIENCE: "120", "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "1200"}
    flags = [*ENDLESS, "--train.checkpoint-every-steps", "4"]
    process, log = job(fake, flags, **patience), tmp_path / "log.txt"
    wait_while_it_runs(process, lambda: steps_done(tmp_path) >= 5, 300, log)
    still = int((tmp_path / "run" / ".rank1.lock").read_text())
    os.kill(still, signal.SIGSTOP)
    stopped_at = time.monotonic()
    wait_while_it_runs(process, lambda: world_sizes(tmp_path) == [2, 2], 400, log)
    print(f"a new group {time.monotonic() - stopped_at:.0f} s after a worker was stopped")
    at = steps_done(tmp_path)
    wait_while_it_runs(process, lambda: steps_done(tmp_path) > at + 5, 300, log)
    process.kill()
    assert "another host is probably gone" in log.read_text()
    assert_steps_agree(tmp_path, flags, whole, read_losses)


@pytest.mark.sweep  # four minutes of Ray and compilers; what a lost host leaves behind is in tests/hosts
def test_a_run_that_loses_a_host_goes_on_with_the_one_left_and_grows_back_when_another_comes(
    tmp_path: Path, pod: Callable[..., Pod], job: Callable, whole: Callable, read_losses: Losses
) -> None:
    flags = [*ENDLESS, "--train.checkpoint-every-steps", "4", "--mesh.min-workers", "1", "--mesh.resize-check-s", "1"]
    fake = pod()
    for _ in range(2):
        fake.add_host(cpus=3)
    fake.wait_for_hosts(2)
    process, log = job(fake, flags), tmp_path / "log.txt"
    saved = tmp_path / "run" / "checkpoints"
    wait_while_it_runs(process, lambda: bool(commits(str(saved))[0]), 300, log)
    fake.lose(fake.hosts[1])
    wait_while_it_runs(process, lambda: world_sizes(tmp_path)[-1:] == [1], 300, log)
    at = steps_done(tmp_path)
    wait_while_it_runs(process, lambda: steps_done(tmp_path) > at + 8, 300, log)
    assert world_sizes(tmp_path)[-1] == 1
    fake.add_host(cpus=3)
    wait_while_it_runs(process, lambda: world_sizes(tmp_path)[-1:] == [2], 300, log)
    at = steps_done(tmp_path)
    wait_while_it_runs(process, lambda: steps_done(tmp_path) > at + 8, 300, log)
    process.kill()
    assert_steps_agree(tmp_path, flags, whole, read_losses)
