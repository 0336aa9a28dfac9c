"""Compiler options of the training step by platform, used by the run and by its plan.

Options that the user sets in XLA_FLAGS or LIBTPU_INIT_ARGS win. Nothing here was measured on a device.
"""

from __future__ import annotations

import os

Options = dict[str, bool | int]

_MIB = 2**20
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
}
"""Platform of a jax device -> options of XLA. The kinds of options are those of MaxText's configurations for A3."""
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
"""Environment variables with options of the compiler as flags."""
MEMORY_FRACTION_NAME = "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""Environment variable with the share of a GPU's memory that jax allocates."""
MEMORY_FRACTION = 0.92
"""That share in a run, unless the user sets it; jax's default is 0.75. The rest is for CUDA and NCCL."""


def step_options(platform: str) -> Options:
    """Options of XLA for the training step on a platform, without those that the user set."""
    flags = {flag.partition("=")[0] for name in FLAGS for flag in os.environ.get(name, "").split()}
    return {name: value for name, value in OPTIONS.get(platform, {}).items() if f"--{name}" not in flags}


def memory_fraction() -> float:
    """Share of a GPU's memory that jax allocates in a worker: the user's, else MEMORY_FRACTION."""
    return float(os.environ.get(MEMORY_FRACTION_NAME) or MEMORY_FRACTION)


def described_settings(platform: str) -> dict[str, bool | int | str]:
    """Settings besides the recipe that affect a compiled step: XLA options, flags, memory fraction, NCCL."""
    names = [name for name in os.environ if name in (*FLAGS, MEMORY_FRACTION_NAME) or name.startswith("NCCL_")]
    return {**step_options(platform), **{name: os.environ[name] for name in sorted(names) if os.environ[name]}}
