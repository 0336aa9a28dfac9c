"""Compiler options and blocks of attention of the training step by device, used by the run and by its plan.

Their values are in compiler_options.toml. Options that the user sets in XLA_FLAGS or LIBTPU_INIT_ARGS win."""

import os
from typing import Any

from lemur_ray.host.json_files import toml_beside
from lemur_ray.train.pod.chips import CHIPS

Options = dict[str, bool | int]

_SCOPED_MEMORY = "xla_tpu_scoped_vmem_limit_kib"
_TABLE = toml_beside(__file__)
OPTIONS: dict[str, Options] = _TABLE["options"]
"""Platform of a jax device, or generation in CHIPS -> options of XLA."""
BLOCKS: dict[str, int] = _TABLE["blocks"]
"""Generation -> maximum tokens of a block of attention; 512 for the others."""
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
"""Environment variables with options of the compiler as flags."""
MEMORY_FRACTION_NAME = "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""Environment variable with the share of a GPU's memory that jax allocates."""
MEMORY_FRACTION = 0.92
"""That share in a run, unless the user sets it; jax's default is 0.75. The rest is for CUDA and NCCL."""


def generation_of(device: Any) -> str:
    """Name in CHIPS of a jax device; "" for a device that is not there."""
    return next((name for name, chip in CHIPS.items() if device.device_kind in chip.kinds), "")


def step_options(device: Any) -> Options:
    """Options of XLA for the training step on a jax device, without those that the user set."""
    flags = _user_flags()
    options = {**OPTIONS.get(device.platform, {}), **OPTIONS.get(generation_of(device), {})}
    return {name: value for name, value in options.items() if name not in flags}


def _user_flags() -> dict[str, str]:
    """Flags that the user set: name without dashes -> value, "" for a flag without one."""
    flags = (flag.partition("=") for name in FLAGS for flag in os.environ.get(name, "").split())
    return {name.removeprefix("--"): value for name, _, value in flags}


def attention_block(device: Any) -> int:
    """Maximum tokens of a block of attention on a TPU: 512 where the user's flags allow less scoped memory than
    OPTIONS. Other devices do not use it. Raises ValueError if that flag's value is not a number."""
    generation = generation_of(device)
    needed = OPTIONS.get(generation, {}).get(_SCOPED_MEMORY, 0)
    return BLOCKS.get(generation, 512) if int(_user_flags().get(_SCOPED_MEMORY, needed)) >= needed else 512


def memory_fraction() -> float:
    """Share of a GPU's memory that jax allocates in a worker: the user's, else MEMORY_FRACTION."""
    return float(os.environ.get(MEMORY_FRACTION_NAME) or MEMORY_FRACTION)


def described_settings(device: Any) -> dict[str, bool | int | str]:
    """Settings beyond the recipe that affect a step compiled for a device: XLA options, flags, memory share, NCCL."""
    names = [name for name in os.environ if name in (*FLAGS, MEMORY_FRACTION_NAME) or name.startswith("NCCL_")]
    return {**step_options(device), **{name: os.environ[name] for name in sorted(names) if os.environ[name]}}
