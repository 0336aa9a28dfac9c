"""Runs in a bucket under faults drawn from a seed end as the undisturbed run does; no history has a breach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.nemesis import MOST_COMMANDS, Nemesis, draw
from tests.faults.training_command import Command, Settings, ended_after
from tests.storage.bucket_server import Entrance, Service, google_service
from tests.train.conftest import corpus  # noqa: F401  # a fixture

STEPS = 24
RECIPE = (
    "nano --model.vocab-size 320 --model.num-layers 1 --model.dim 32 --model.ffn-dim 64 --model.num-heads 2 "
    "--model.num-kv-heads 1 --model.head-dim 16 --model.max-seq-len 64 --data.seq-len 64 --optimizer.warmup-steps 2 "
    f"--train.rows-per-step 2 --train.log-every-steps 1 --train.steps {STEPS} --train.checkpoint-every-steps 6 "
    "--train.checkpoint-every-s 1000000 --train.keep-checkpoints 2 --train.eval-rows 0"
).split()
OUT = "gs://bucket/run"
SLOW_SEEDS, ALL_SEEDS = 1, 100
"""Seeds in the slow tests, and with those of the sweep."""


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
        commands[0].process.join(120)
        assert commands[0].exit_code() == 0, commands[0].output()
        writes = [write for write in service.history.accepted() if not write.name.endswith(".run.lease")]
        assert [step for step, _ in losses(service)] == list(range(1, STEPS + 1))
        return losses(service), len(writes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.sweep] * (seed >= SLOW_SEEDS)) for seed in range(ALL_SEEDS)]
)
def test_a_run_under_faults_ends_as_the_undisturbed_run(
    seed: int,
    corpus: Path,  # noqa: F811
    tmp_path: Path,
    undisturbed: tuple[list[tuple[int, float]], int],
) -> None:
    schedule = draw(seed)
    expected, num_writes = undisturbed
    print(schedule)  # shown if the test fails
    with google_service() as service, ended_after([]) as commands:

        def start(entrance: Entrance, clock_s: float) -> Command:
            beat_s = 1.5 if schedule.rate_limited else 0.25
            more = {"clock_s": clock_s, "beat_s": beat_s, "linger_s": schedule.linger_s}
            return Command(settings(tmp_path / f"{len(commands)}", entrance, corpus, **more))

        nemesis = Nemesis(service, schedule, start, num_writes, commands)
        try:
            nemesis.run()
            result = json.loads(service.objects.get("bucket", "run/result.json", {}).data)
            assert losses(service) == expected
            assert (result["steps"], result["replays_that_differ"]) == (STEPS, [])
        finally:
            print(f"seed {seed}: {len(commands)} commands, struck: {'; '.join(nemesis.struck)}")
            for command in commands:
                print(f"--- exit code {command.exit_code()}\n{command.output()[-3000:]}")


def test_a_seed_alone_determines_the_schedule() -> None:
    schedules = [draw(seed) for seed in range(ALL_SEEDS)]
    assert schedules == [draw(seed) for seed in range(ALL_SEEDS)]
    assert {fault.kind for one in schedules for fault in one.faults} == {"stop", "kill", "cut", "errors", "expired"}
    struck = {(fault.kind, fault.role) for one in schedules for fault in one.faults}
    assert {(kind, role) for kind in ("stop", "kill") for role in ("driver", "controller", "worker", "host")} <= struck
    assert all(len(one.clocks_s) > MOST_COMMANDS for one in schedules)
