"""Compile a recipe's training step for absent devices: python jobs/plan_pod.py lemur-70b --topology v4:4x8x8.

Prints the memory of a device by kind, FLOPs, bytes of each collective, an estimate of the step and whether it fits; the
last line is one JSON object. --search N compiles N candidates of mesh, microbatches and remat and shows the best.
TPUs need libtpu (extra [tpu]), without which only shardings are checked; GPUs need `make gpu-compiler`, whose python
runs the job: .venv-gpu-compiler/bin/python jobs/plan_pod.py llama3-8b --topology h100:8."""

import _path

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from lemur_ray.config import Recipe, topics
from lemur_ray.train.job_arguments import Flat, parse_job
from lemur_ray.train.aot import planning
from lemur_ray.train.pod.gpu_hosts import parse_devices


@dataclass(frozen=True)
class PlanJob:
    """Plan a recipe on a TPU slice or on GPUs. First argument: a recipe, by default lemur-70b."""

    HELP = topics("plan")

    topology: str = ""
    """A slice, for example v4:4x8x8, v5e:4x4, v5p:4x4x8, v6e:16x16; or GPUs, h100:8, h100:2x8 (hosts x GPUs), h200:8,
    b200:8. Empty: the recipe's."""
    search: int = 0
    """Number of candidates (mesh, microbatches, remat) to compile, the best of which is shown. 0: the recipe alone."""
    describe: bool = False
    """Print the rule table applied (parameter, shape, sharding, bytes per device) and compile nothing."""
    recipe: Flat = field(default_factory=Recipe)


def main(argv: Sequence[str] | None = None) -> int:
    job = parse_job(PlanJob, argv, prog="plan_pod.py", recipe="lemur-70b")
    try:
        where = parse_devices(job.topology) if job.topology else planning.devices_of(job.recipe)
        result = planning.run(job.recipe, where, search=job.search, describe=job.describe, say=print)
    except ValueError as error:
        return _path.fail("plan_pod", error)
    print(json.dumps(result), flush=True)
    return 0 if result.get("fits") is not False else 1


if __name__ == "__main__":
    _path.run(main)
