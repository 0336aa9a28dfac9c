"""Processes of a run that stop themselves (SIGSTOP) in the middle, as a host that is frozen; the test wakes them.

``python -m tests.train.on_ray.frozen_processes worker RUN.pickle STEP`` trains without Ray and stops before a step.
``... driver SECONDS ARGUMENTS`` is jobs/pretrain.py with a lease of few seconds and steps that take so long, from step
QUICK_STEPS on. With LEMUR_TEST_START in the environment it imports everything, then waits until that file exists.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

BEAT_S = 0.5
"""Seconds between two renewals of a driver's lease."""
QUICK_STEPS = 5
SLOW, START = "LEMUR_TEST_STEP_S", "LEMUR_TEST_START"


def train_and_freeze(path: str, step: int) -> int:
    from lemur_ray.corpus.manifest import read_manifest
    from lemur_ray.plan.fetch import iterate
    from lemur_ray.plan.plan import plan_for
    from lemur_ray.storage import append_file
    from lemur_ray.train import loop
    from lemur_ray.train.run.fence import Superseded
    from lemur_ray.train.run.folder import prepare

    logging.getLogger("absl").setLevel(logging.CRITICAL)  # as in ``run_worker``
    append_file.UPLOAD_EVERY_S = 0.02
    run = pickle.loads(Path(path).read_bytes())
    prepare(run)
    plan = plan_for(run.recipe, read_manifest(run.corpus))

    def feed(row: int) -> Iterator[Any]:
        batches = iterate(plan, run.corpus, row, rows_per_step=run.recipe.train.rows_per_step)
        for number, batch in enumerate(batches):
            if number == step:
                os.kill(os.getpid(), signal.SIGSTOP)
            yield batch

    try:
        loop.train(run, feed)
    except Superseded as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    return 0


def slow_worker(config: dict[str, Any]) -> None:
    from lemur_ray.storage import append_file
    from lemur_ray.train import loop
    from lemur_ray.train.on_ray.worker import run_worker

    append_file.UPLOAD_EVERY_S = 0.2
    batch = loop.RowSupply.batch

    def slowly(self: loop.RowSupply, step: int) -> Any:
        time.sleep(float(os.environ.get(SLOW) or 0) if step >= QUICK_STEPS else 0)
        return batch(self, step)

    loop.RowSupply.batch = slowly  # type: ignore[method-assign]
    run_worker(config)


def drive(step_s: str, arguments: Iterable[str]) -> int:
    from lemur_ray.train.on_ray import trainer, worker_environment

    os.environ[SLOW] = step_s
    worker_environment.PASSED_ON = (*worker_environment.PASSED_ON, SLOW)
    trainer.run_worker = slow_worker
    trainer.lease = partial(trainer.lease, beat_s=BEAT_S)
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "jobs"))
    import pretrain

    while START in os.environ and not Path(os.environ[START]).exists():
        time.sleep(0.05)
    return int(pretrain.main(list(arguments)))


if __name__ == "__main__":
    from tests.train.on_ray import frozen_processes  # so that workers import the functions by this name

    kind, first, *rest = sys.argv[1:]
    if kind == "worker":
        raise SystemExit(frozen_processes.train_and_freeze(first, int(rest[0])))
    raise SystemExit(frozen_processes.drive(first, rest))
