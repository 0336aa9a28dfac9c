"""A process of a run that was thought dead and comes back: the newer run is whole, the older one ends and says why."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.config import Recipe
from lemur_ray.host.exit_codes import ExitCode
from lemur_ray.recipes import with_vocabulary
from lemur_ray.storage.append_file import AppendFile
from lemur_ray.train.job_arguments import TrainingJob, parse_job
from lemur_ray.train.run.folder import Run
from lemur_ray.weights.checkpoints import commits
from tests.e2e.processes import descendants
from tests.faults.training_command import is_stopped
from tests.storage.bucket_server import Service
from tests.storage.conftest import google  # noqa: F401  # a fixture
from tests.train.test_resume import RECIPE, ROOT, Head, heads  # noqa: F401  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
OVERTAKEN = re.compile("overtaken by attempt|taken over by another run")


def losses(lines: bytes) -> dict[int, float]:
    records = [json.loads(line) for line in lines.splitlines()]
    assert len({record["step"] for record in records}) == len(records), "a step has two lines"
    return {record["step"]: record["loss"] for record in records}


def stored(service: Service, name: str) -> bytes:
    """An object of the bucket, empty if it is not there."""
    return service.objects.get("bucket", name, {}).data if name in service.objects.names("bucket") else b""


def wait(condition: Callable[[], Any], process: subprocess.Popen[str], within_s: float = 240) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}: {Path(process.args[-1]).read_text()[-3000:]}"  # type: ignore[index]
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a process of ``frozen_processes`` with its output in a file; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def go(log: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.train.on_ray.frozen_processes", *arguments]
        with log.open("w") as out:
            env = {**os.environ, "LEMUR_HOME": str(tmp_path), **environment}
            started.append(subprocess.Popen(command, env=env, stdout=out, stderr=out, text=True, cwd=ROOT))
        started[-1].args = [*command, str(log)]
        return started[-1]

    yield go
    for process in started:
        process.kill()
        process.wait()


def one_sentence(log: Path) -> str:
    """The only line of a log that says that the run was overtaken."""
    said = [line for line in log.read_text().splitlines() if OVERTAKEN.search(line)]
    assert len(said) == 1, log.read_text()[-4000:]
    return said[0]


@pytest.mark.parametrize(
    "step", [15, *(pytest.param(step, marks=pytest.mark.sweep) for step in range(3, 40, 2) if step != 15)]
)
def test_a_worker_that_wakes_after_the_newer_attempt_has_finished_ends_and_leaves_the_run_as_it_is(
    step: int,
    tmp_path: Path,
    corpus: Path,
    run_here: Callable,
    small_recipe: Callable[..., Recipe],
    google: Service,  # noqa: F811
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    recipe = small_recipe(steps=40, checkpoint_every_steps=10, checkpoint_every_s=1e9)
    run_here(recipe, tmp_path / "whole")
    out = "gs://bucket/runs/one"
    (tmp_path / "run.pickle").write_bytes(pickle.dumps(Run(recipe, str(corpus), out)))
    older = start(tmp_path / "older", "worker", str(tmp_path / "run.pickle"), str(step))
    wait(lambda: is_stopped(older.pid), older)
    result = run_here(recipe, out)
    whole = losses((tmp_path / "whole" / "metrics.jsonl").read_bytes())
    assert losses(stored(google, "runs/one/metrics.jsonl")) == whole
    before = {name: google.objects.get("bucket", name, {}).data for name in google.objects.names("bucket")}
    older.send_signal(signal.SIGCONT)
    assert older.wait(60) == ExitCode.OVERTAKEN, (tmp_path / "older").read_text()[-3000:]
    assert "attempt 1 of gs://bucket/runs/one was overtaken by attempt 2" in one_sentence(tmp_path / "older")
    after = {name: google.objects.get("bucket", name, {}).data for name in google.objects.names("bucket")}
    assert {name for name in after if before.get(name) != after[name]} <= _unfinished(after, result["attempt"])
    assert commits(f"{out}/checkpoints")[0][0].plan["attempt"] == result["attempt"]


def _unfinished(names: Any, attempt: int) -> set[str]:
    """Objects of checkpoints that an earlier attempt had begun, without the marker that would commit them."""
    mine = re.compile(rf"/checkpoints/(\d+\.attempt-{attempt}/|[^/]+/commit_success)")
    return {name for name in names if "/checkpoints/" in name and not mine.search(name)}


def overtake(
    tmp_path: Path, corpus: Path, service: Service, start: Callable[..., subprocess.Popen[str]], run_here: Callable,
    addresses: list[str], freeze: Callable[[subprocess.Popen[str]], list[int]],
) -> None:  # fmt: skip
    """Freeze a driver (and what else ``freeze`` names), let a second one take over and finish, then wake the first."""
    flags = [*RECIPE, "--train.steps", "20", "--train.checkpoint-every-steps", "4", "--train.eval-rows", "0"]
    recipe = with_vocabulary(parse_job(TrainingJob, flags, prog="pretrain").recipe, 320)
    run_here(recipe, tmp_path / "whole")
    older_log, newer_log, begin = tmp_path / "older", tmp_path / "newer", tmp_path / "begin"
    out, name = "gs://bucket/runs/two", "runs/two/metrics.jsonl"
    flags += ["--corpus", str(corpus), "--out", out]
    older = start(older_log, "driver", "5", *flags, RAY_ADDRESS=addresses[0])
    newer = start(newer_log, "driver", "0", *flags, RAY_ADDRESS=addresses[-1], LEMUR_TEST_START=str(begin))
    wait(lambda: stored(service, name).count(b"\n") >= 4, older)
    stopped = freeze(older)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    begin.touch()
    wait(lambda: json.loads(stored(service, "runs/two/.run.attempt"))["attempt"] > 1, newer)
    if len(stopped) > 1:
        assert newer.wait(240) == 0, newer_log.read_text()[-4000:]
    for pid in reversed(stopped):
        os.kill(pid, signal.SIGCONT)
    assert older.wait(120) == ExitCode.OVERTAKEN, older_log.read_text()[-6000:]
    assert newer.wait(240) == 0, newer_log.read_text()[-6000:]
    # Ray also prints what other programs of this machine write to /tmp/tpu_logs, at any moment.
    result = json.loads([line for line in newer_log.read_text().splitlines() if line.startswith("{")][-1])
    assert result["replays_that_differ"] == []
    said = [line for line in older_log.read_text().splitlines() if line.startswith("pretrain: ")]
    assert len(said) == 1, older_log.read_text()[-6000:]
    assert OVERTAKEN.search(said[0])
    assert "delete" not in older_log.read_text() + newer_log.read_text()
    for appended in ("metrics", "goodput"):  # removes what a worker left that was killed in an upload
        AppendFile(f"{out}/{appended}.jsonl").close()
    assert not [name for name in service.objects.names("bucket") if "/.ray/" in name or "part-" in name]
    assert losses(stored(service, name)) == losses((tmp_path / "whole" / "metrics.jsonl").read_bytes())


def test_a_driver_that_wakes_after_its_lease_ended_stops_with_its_workers_and_the_newer_one_finishes(
    ray_local: str,
    tmp_path: Path,
    corpus: Path,
    google: Service,  # noqa: F811
    start: Callable[..., subprocess.Popen[str]],
    run_here: Callable,
) -> None:
    overtake(tmp_path, corpus, google, start, run_here, [ray_local], lambda driver: [driver.pid])


@pytest.mark.sweep  # two clusters
def test_a_host_that_wakes_with_driver_controller_and_workers_stops_and_the_newer_run_is_whole(
    tmp_path: Path,
    corpus: Path,
    google: Service,  # noqa: F811
    start: Callable[..., subprocess.Popen[str]],
    heads: Callable[[], Head],  # noqa: F811
    run_here: Callable,
) -> None:
    one, two = heads(), heads()
    overtake(
        tmp_path, corpus, google, start, run_here, [one.address, two.address],
        lambda driver: sorted({driver.pid, *descendants(driver.pid), *one.processes()}),
    )  # fmt: skip
