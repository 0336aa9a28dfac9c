"""Flags of ``jobs/plan_serving.py`` that a plan uses; any other is refused, since a plan would not depend on it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lemur_ray.train.pod.gpu_hosts import Devices

_FORMULA = {"json", "quantization", "engine.context", "engine.max-slots", "engine.dtype", "engine.quantization"}
_COMPILED = _FORMULA | {"every-shape", "engine.cache-bytes", "engine.prefill-tiles", "engine.tensor-parallel"}
_COMPILED |= {"engine.batch-invariant"}


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
