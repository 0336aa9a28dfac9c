"""Seconds of 40 logged steps in a bucket, with and without Google's limit of one write a second to an object. By hand.

    python -m tests.perf.train.metrics_rate [--repeats 3]

Both runs train in this process, one after the other, in turns; the first pair compiles and is not counted. "steps":
from the first logged step to the last. "run": also the one checkpoint at the end, to which tensorstore writes one
manifest five times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

from lemur_ray.corpus.manifest import read_manifest
from lemur_ray.plan.fetch import iterate
from lemur_ray.plan.plan import plan_for
from lemur_ray.recipes import with_vocabulary
from lemur_ray.storage.file_system import client_environment
from lemur_ray.train import loop
from lemur_ray.train.job_arguments import TrainingJob, parse_job
from lemur_ray.train.run.folder import Run, prepare
from tests.storage.bucket_server import Service, google_service
from tests.train.conftest import write_corpus
from tests.train.test_resume import RECIPE


def seconds(corpus: Path, out: str, service: Service) -> tuple[float, float]:
    """(seconds between the first and the last logged step, seconds of the run after its first step)."""
    flags = [*RECIPE, "--train.steps", "40", "--train.checkpoint-every-steps", "1000", "--train.eval-rows", "0"]
    recipe = with_vocabulary(parse_job(TrainingJob, flags, prog="metrics_rate").recipe, 320)
    run, plan = Run(recipe, str(corpus), out), plan_for(recipe, read_manifest(corpus))
    prepare(run)
    result = loop.train(
        run,
        lambda row: iterate(plan, corpus, row, rows_per_step=recipe.train.rows_per_step),
        loop.Worker(log=lambda line: None),
    )
    lines = service.objects.get("bucket", out.removeprefix("gs://bucket/") + "/metrics.jsonl", {}).data.splitlines()
    times = [record["unix_s"] for record in map(json.loads, lines)]
    assert len(times) == 40
    return times[-1] - times[0], float(result["wall_s"] - result["first_step_s"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder, google_service() as service:
        os.environ.update(service.environment | client_environment())
        corpus = write_corpus(Path(folder) / "corpus")
        took: dict[float, list[tuple[float, float]]] = {0.0: [], 1.0: []}
        for number in range(repeats + 1):
            for limit_s, values in took.items():
                service.objects.write_interval_s = limit_s
                values.append(seconds(corpus, f"gs://bucket/runs/{number}-{limit_s:g}", service))
    for place, what in enumerate(("steps", "run")):
        free, limited = (statistics.median(value[place] for value in values[1:]) for values in took.values())
        numbers = {"free_s": round(free, 3), "limited_s": round(limited, 3), "ratio": round(limited / free, 3)}
        print(json.dumps({"what": what, **numbers, "repeats": repeats}))


if __name__ == "__main__":
    main()
