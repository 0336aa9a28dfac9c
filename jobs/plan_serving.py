"""Compile an engine's steps for a TPU chip without one: python jobs/plan_serving.py llama2-7b --chip v6e.

Prints the chip memory of a decode step and a prefill step and whether the TPU kernel is in them; the last line is one
JSON object. Needs libtpu (extra [tpu]), no TPU. Does not estimate speed.
"""

import _path

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from lemur_ray.config import Recipe
from lemur_ray.train.job_arguments import Flat, parse_job
from lemur_ray.serve.config import EngineOptions
from lemur_ray.train.aot import absent_slice
from lemur_ray.train.aot.pod_plan import LIMIT
from lemur_ray.train.pod.chips import CHIPS, GIB
from lemur_ray.train.pod.slices import parse_slice


@dataclass(frozen=True)
class PlanServingJob:
    """Plan the engine of a recipe's model on one TPU chip. First argument: a recipe, by default llama2-7b."""

    chip: str = "v5e"
    """TPU generation: v4, v5e, v5p or v6e."""
    every_shape: bool = False
    """Plan every step that an engine compiles, not only the largest ones."""
    engine: EngineOptions = EngineOptions(dtype="bfloat16")
    recipe: Flat = field(default_factory=Recipe)


def main(argv: Sequence[str] | None = None) -> int:
    job = parse_job(PlanServingJob, argv, prog="plan_serving.py", recipe="llama2-7b")
    try:
        where = parse_slice(f"{job.chip}:{'2x2x1' if job.chip in ('v4', 'v5p') else '2x2'}")
        os.environ.update(absent_slice.environment(where, with_libtpu=True, num_devices=1))
        from lemur_ray.serve.compute import ahead_of_time

        steps = ahead_of_time.plan(
            job.recipe.model, job.engine, absent_slice.devices(where, 1)[0], every_shape=job.every_shape
        )
    except (ValueError, absent_slice.NoLibtpu) as error:
        return _path.fail("plan_serving", error)
    for step in steps:
        print(step)
    most, limit = max(step.total for step in steps), LIMIT * CHIPS[job.chip].hbm_bytes
    print(f"{most / GIB:.2f} of {limit / GIB:.1f} GiB that a plan may use of a {job.chip}")
    found = {"model": job.recipe.name, "chip": job.chip, "fits": most <= limit}
    print(json.dumps({**found, "steps": [step.to_json() for step in steps]}))
    return 0 if most <= limit else 1


if __name__ == "__main__":
    _path.run(main)
