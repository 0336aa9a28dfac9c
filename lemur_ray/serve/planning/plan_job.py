"""The plan of a served model that ``jobs/plan_serving.py`` prints: on a slice, GPUs or one chip, or the smallest
devices by formula."""

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lemur_ray.config import Recipe, topics
from lemur_ray.config.ranges import FROM_ZERO, check_ranges
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.planning import machines
from lemur_ray.serve.planning.machine_defaults import USABLE, chosen, gib
from lemur_ray.train.aot import absent_devices
from lemur_ray.train.job_arguments import Flat
from lemur_ray.train.pod.chips import CHIPS
from lemur_ray.train.pod.gpu_hosts import Devices, GpuHosts
from lemur_ray.train.pod.slices import GENERATIONS, parse_slice

Say = Callable[[str], None]

_FORMULA = {"json", "quantization", "engine.context", "engine.max-slots", "engine.dtype", "engine.quantization"}
_COMPILED = _FORMULA | {"every-shape", "engine.cache-bytes", "engine.prefill-tiles", "engine.tensor-parallel"}
_COMPILED |= {"engine.batch-invariant"}
"""Flags that a plan by formula uses, and a compiled one; any other is refused, as the plan would not depend on it."""


@dataclass(frozen=True)
class PlanServingJob:
    """Plan the engine of a recipe's model on absent devices. First argument: a recipe, by default llama2-7b."""

    HELP = topics("plan-serving")

    slice: str = ""
    """TPU slice whose chips share the model, for example v4:2x2x4."""
    gpu: str = ""
    """GPUs that share the model, for example h200x8."""
    chip: str = "v5e"
    """If this flag is given: one chip of a TPU generation, v4, v5e, v5p or v6e."""
    check: bool = False
    """Exit code 1 also if temporaries and code, collectives of a layer or copies exceed their bounds."""
    json: bool = False
    """Print the JSON object alone."""
    layers: int = 4
    """Number of layers to compile, from which the others are scaled; 0: all. A slice always compiles all: they are
    scanned, so their number costs nothing."""
    quantization: Literal["none", "int8"] = "none"
    """Short for --engine.quantization."""
    every_shape: bool = False
    """Plan every step that an engine compiles, not only the largest ones."""
    engine: EngineOptions = EngineOptions(dtype="bfloat16", cache_bytes=0, prefill_tiles=0)
    recipe: Flat = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        check_ranges(self, layers=FROM_ZERO)
        if self.chip not in GENERATIONS:
            raise ValueError(f"--chip is {self.chip!r}: expected one of {', '.join(GENERATIONS)}")


def run(job: PlanServingJob, flags: set[str], say: Say) -> int:
    """Make a plan and write it by ``say``, line by line, the last one a JSON object. Returns the exit code: 0, or 1 if
    the model does not fit. flags: names of the flags given on the command line. Sets environment variables for the
    compiler. Raises ValueError for flags that do not fit together, NoLibtpu without the TPU compiler."""
    if job.quantization != "none":
        job = replace(job, engine=replace(job.engine, quantization=job.quantization))
    where = machines.parse_machine(job.slice, job.gpu)
    chip = job.chip if "chip" in flags else ""
    check_flags(flags, job.engine.tensor_parallel, where, chip)
    if where is not None:
        return _on_devices(job, where, flags, say)
    return _on_chip(job, say) if chip else _smallest(job, say)


def given_flags(arguments: Sequence[str]) -> set[str]:
    """Names of the flags on a command line, without leading dashes, with - for _, and x for --no-x."""
    names = (word[2:].split("=")[0].replace("_", "-") for word in arguments if word.startswith("--"))
    return {re.sub(r"(^|\.)no-", r"\1", name) for name in names}


def check_flags(given: set[str], tensor_parallel: int, where: Devices | None, chip: str) -> None:
    """Raise ValueError for a flag that the plan would ignore or that is given by two names, and for a number of devices
    that is not the plan's.
    where: devices of --slice or --gpu; chip: of --chip; without both the plan is a formula. given: names of flags, as
    from ``given_flags``; tensor_parallel: value of that flag."""
    if where is not None and chip:
        raise ValueError("--chip is one chip alone: leave it out with --slice and --gpu")
    if {"quantization", "engine.quantization"} <= given:
        raise ValueError("--quantization is short for --engine.quantization: give one of them")
    used = _COMPILED | {"slice", "gpu", "check", "layers"} if where else _COMPILED | {"chip"} if chip else _FORMULA
    if unused := sorted(name for name in given - used if not name.startswith("model.")):
        kind = "a plan of devices" if where else "a plan of one chip" if chip else "a plan without --slice or --gpu"
        other = "" if where or chip else ", or name devices"
        raise ValueError(f"{', '.join(f'--{name}' for name in unused)}: {kind} does not use it, leave it out{other}")
    devices = where.num_chips if where else 1
    if "engine.tensor-parallel" in given and tensor_parallel not in (0, devices):
        raise ValueError(f"--engine.tensor-parallel is {tensor_parallel}, but the plan is for {devices} device(s)")


def _print(job: PlanServingJob, say: Say, lines: Iterable[str], result: dict[str, Any]) -> None:
    for line in () if job.json else lines:
        say(line)
    say(json.dumps(result))


def _smallest(job: PlanServingJob, say: Say) -> int:
    model, engine = job.recipe.model, job.engine
    found = machines.smallest(model, engine)
    lines = [f"the smallest that fit {job.recipe.name}, by formula; --slice or --gpu compiles the program"]
    lines += [machines.describe(name, where, model, engine) for name, where in found.items()]
    named = {name: where and where.topology for name, where in found.items()}
    _print(job, say, lines, {"model": job.recipe.name, "smallest": named})
    return 0 if any(found.values()) else 1


def _on_devices(job: PlanServingJob, where: Devices, flags: set[str], say: Say) -> int:
    """Print the plan for ``where``; returns the exit code. What ``flags`` leave open is chosen as a server would."""
    if isinstance(where, GpuHosts):
        absent_devices.check_gpu_compiler()
    os.environ.update(absent_devices.environment(where))
    from lemur_ray.serve.compute.programs import is_scanned
    from lemur_ray.serve.planning import serving_plan

    model, engine = job.recipe.model, job.engine
    if "layers" in flags and is_scanned(model, where.num_chips, machines.machine_of(where).platform):
        raise ValueError(
            "--layers: layers of a slice are scanned, so all are compiled at the cost of one, leave it out"
        )
    engine = chosen(engine, model, machines.machine_of(where))
    plan = serving_plan.plan(job.recipe.name, model, engine, where, job.layers, every_shape=job.every_shape)
    _print(job, say, plan.lines(), plan.to_json())
    return 1 if (plan.broken() if job.check else plan.peak > plan.limit) else 0


def _on_chip(job: PlanServingJob, say: Say) -> int:
    where = parse_slice(f"{job.chip}:{'2x2x1' if job.chip in ('v4', 'v5p') else '2x2'}")
    os.environ.update(absent_devices.environment(where))
    from lemur_ray.serve.compute import ahead_of_time

    device = absent_devices.devices(where)[:1]
    on_cpu = EngineOptions()
    cache_bytes, tiles = job.engine.cache_bytes or on_cpu.cache_bytes, job.engine.prefill_tiles or on_cpu.prefill_tiles
    engine = replace(job.engine, cache_bytes=cache_bytes, prefill_tiles=tiles)
    shapes = ahead_of_time.shapes(engine, every_shape=job.every_shape)
    steps = [ahead_of_time.compile_step(job.recipe.model, engine, device, *shape) for shape in shapes]
    most, limit = max(step.total for step in steps), USABLE["tpu"] * CHIPS[job.chip].hbm_bytes
    lines = [*map(str, steps), f"{gib(most)} of {gib(limit)} that a plan may use of a {job.chip}"]
    result = {"model": job.recipe.name, "chip": job.chip, "fits": most <= limit}
    _print(job, say, lines, {**result, "steps": [step.to_json() for step in steps]})
    return 0 if most <= limit else 1
