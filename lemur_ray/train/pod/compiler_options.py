"""Compiler options and blocks of attention of the training step by device, used by the run and by its plan.

Options that the user sets in XLA_FLAGS or LIBTPU_INIT_ARGS win. Nothing here was measured on a device."""

from __future__ import annotations

import os
from typing import Any

from lemur_ray.train.pod.chips import CHIPS

Options = dict[str, bool | int]

_MIB = 2**20
_SCOPED_MEMORY = "xla_tpu_scoped_vmem_limit_kib"
_TPU: Options = {
    "xla_enable_async_all_gather": True,
    "xla_tpu_enable_async_collective_fusion": True,
    "xla_tpu_enable_async_collective_fusion_fuse_all_gather": True,
    "xla_tpu_enable_async_collective_fusion_multiple_steps": True,
    "xla_tpu_overlap_compute_collective_tc": True,
    "xla_tpu_enable_data_parallel_all_reduce_opt": True,
    "xla_tpu_data_parallel_opt_different_sized_ops": True,
}
OPTIONS: dict[str, Options] = {
    "gpu": {
        "xla_gpu_enable_latency_hiding_scheduler": True,
        "xla_gpu_enable_pipelined_all_gather": True,
        "xla_gpu_enable_pipelined_reduce_scatter": True,
        "xla_gpu_enable_pipelined_all_reduce": True,
        # About one layer of an 8B model in bfloat16: larger collectives would begin later than their products.
        "xla_gpu_all_gather_combine_threshold_bytes": 256 * _MIB,
        "xla_gpu_reduce_scatter_combine_threshold_bytes": 256 * _MIB,
        "xla_gpu_all_reduce_combine_threshold_bytes": 256 * _MIB,
    },
    "tpu": _TPU,
    "v6e": {**_TPU, _SCOPED_MEMORY: 98_304},
}
"""Generation in CHIPS, or platform of a jax device -> options of XLA. The kinds of options are those of MaxText's
configurations for A3, v5p and v6e."""
BLOCKS = {"v6e": 2048}
"""Generation -> maximum tokens of a block of attention on TPU, where published configurations have larger ones than
512, with the scoped memory above. Compiled without options (libtpu 0.0.42; 32 heads of 128 values in bfloat16), value
and gradients of a row of 4,096 or 8,192 tokens need 32.8 or 33.8 MiB of v6e's default of 32 in the gradient's kernel;
the forward kernel of a row of 4,096 needs 22.8 MiB of v5e's 16."""
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
    options = OPTIONS.get(generation_of(device)) or OPTIONS.get(device.platform, {})
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
    """Settings besides the recipe that affect a step compiled for a jax device: XLA options, flags, memory fraction,
    NCCL."""
    names = [name for name in os.environ if name in (*FLAGS, MEMORY_FRACTION_NAME) or name.startswith("NCCL_")]
    return {**step_options(device), **{name: os.environ[name] for name in sorted(names) if os.environ[name]}}
