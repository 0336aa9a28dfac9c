"""Runs in a bucket under faults drawn from a seed end as the undisturbed run does; no history has a breach."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.faults.nemesis import MOST_COMMANDS, Nemesis, draw
from tests.faults.ray_command import RayCommand
from tests.faults.training_command import Command, Settings, ended_after
from tests.storage.bucket_server import Entrance, Service, google_service
from tests.train.conftest import corpus  # noqa: F401  # a fixture

STEPS = 12
RECIPE = (
    "nano --model.vocab-size 320 --model.num-layers 1 --model.dim 32 --model.ffn-dim 64 --model.num-heads 2 "
    "--model.num-kv-heads 1 --model.head-dim 16 --model.max-seq-len 64 --data.seq-len 64 --optimizer.warmup-steps 2 "
    f"--train.rows-per-step 2 --train.log-every-steps 1 --train.steps {STEPS} --train.checkpoint-every-steps 4 "
    "--train.checkpoint-every-s 1000000 --train.keep-checkpoints 2 --train.eval-rows 0"
).split()
OUT = "gs://bucket/run"
SLOW_SEEDS, ALL_SEEDS, RAY_SEEDS = 10, 100, 20
"""Seeds in the slow tests, with those of the sweep, and of the sweep on Ray."""
AT_ONCE = 4
"""Seeds that run at the same time: most of the time of a run under faults is waiting."""


def settings(folder: Path, entrance: Entrance, corpus: Path, **more: Any) -> Settings:  # noqa: F811
    environment = {**entrance.environment, "LEMUR_BUCKET_PATIENCE_S": "20", "LEMUR_HOME": str(folder / "home")}
    argv = (*RECIPE, "--corpus", str(corpus), "--out", OUT)
    return Settings(argv, folder, environment, **more)


def losses(service: Service) -> list[tuple[int, float]]:
    """(step, loss) of every line of the run's metrics, in order."""
    lines = service.objects.get("bucket", "run/metrics.jsonl", {}).data.splitlines()
    return [(record["step"], record["loss"]) for record in map(json.loads, lines)]


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[int, float]], int]:  # noqa: F811
    """(losses, number of writes apart from those of the lease) of the run that nothing disturbs."""
    with google_service() as service, ended_after([]) as commands:
        folder = tmp_path_factory.mktemp("undisturbed") / "command"
        commands.append(Command(settings(folder, service.entrances[0], corpus)))
        commands[0].process.join(600)
        assert commands[0].exit_code() == 0, commands[0].output()
        writes = [write for write in service.history.accepted() if not write.name.endswith(".run.lease")]
        assert [step for step, _ in losses(service)] == list(range(1, STEPS + 1))
        return losses(service), len(writes)


def run_seed(
    seed: int,
    corpus: Path,  # noqa: F811
    folder: Path,
    undisturbed: tuple[list[tuple[int, float]], int],
    kind: type[Command] | type[RayCommand] = Command,
) -> str:
    """Run a command under the faults of a seed. Returns what went wrong, empty if nothing did."""
    schedule, commands = draw(seed), list[Any]()
    expected, num_writes = undisturbed

    def start(entrance: Entrance, clock_s: float) -> Command | RayCommand:
        beat_s = 1.5 if schedule.rate_limited else 0.25
        more = {"clock_s": clock_s, "beat_s": beat_s, "linger_s": schedule.linger_s}
        return kind(settings(folder / f"{len(commands)}", entrance, corpus, **more))

    struck: list[str] = []
    try:
        with google_service() as service, ended_after(commands):
            nemesis = Nemesis(service, schedule, start, num_writes, commands, struck)
            nemesis.run()
            result = json.loads(service.objects.get("bucket", "run/result.json", {}).data)
            assert losses(service) == expected
            assert (result["steps"], result["replays_that_differ"]) == (STEPS, [])
    except Exception as error:
        ends = [f"--- exit code {command.exit_code()}\n{command.output()[-3000:]}" for command in commands]
        return "\n".join([f"{schedule}: {error}", f"struck: {'; '.join(struck)}", *ends])
    return ""


def check_seeds(
    seeds: Iterable[int],
    corpus: Path,  # noqa: F811
    undisturbed: tuple[list[tuple[int, float]], int],
    folder: Path,
) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        failures = list(pool.map(lambda seed: run_seed(seed, corpus, folder / f"{seed}", undisturbed), seeds))
    assert not any(failures), "\n\n".join(filter(None, failures))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_runs_under_the_faults_of_ten_seeds_end_as_the_undisturbed_run(
    corpus: Path,  # noqa: F811
    tmp_path: Path,
    undisturbed: tuple[list[tuple[int, float]], int],
) -> None:
    check_seeds(range(SLOW_SEEDS), corpus, undisturbed, tmp_path)


@pytest.mark.sweep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(ALL_SEEDS))
def test_a_run_under_the_faults_of_a_seed_ends_as_the_undisturbed_run(
    seed: int,
    corpus: Path,  # noqa: F811
    tmp_path: Path,
    undisturbed: tuple[list[tuple[int, float]], int],
) -> None:
    check_seeds([seed], corpus, undisturbed, tmp_path)


@pytest.mark.sweep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(RAY_SEEDS))
def test_a_run_on_ray_under_the_faults_of_a_seed_ends_as_the_undisturbed_run(
    seed: int,
    corpus: Path,  # noqa: F811
    tmp_path: Path,
    undisturbed: tuple[list[tuple[int, float]], int],
) -> None:
    failure = run_seed(seed, corpus, tmp_path, undisturbed, RayCommand)
    assert not failure, failure


def test_a_seed_alone_determines_the_schedule() -> None:
    schedules = [draw(seed) for seed in range(ALL_SEEDS)]
    assert schedules == [draw(seed) for seed in range(ALL_SEEDS)]
    assert {fault.kind for one in schedules for fault in one.faults} == {"stop", "kill", "cut", "errors", "expired"}
    struck = {(fault.kind, fault.role) for one in schedules for fault in one.faults}
    assert {(kind, role) for kind in ("stop", "kill") for role in ("driver", "controller", "worker", "host")} <= struck
    assert all(len(one.clocks_s) > MOST_COMMANDS for one in schedules)
