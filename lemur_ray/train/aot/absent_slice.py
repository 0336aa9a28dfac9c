"""Descriptions of a TPU slice that this machine lacks, for XLA's compiler, and the environment that jax needs for it.

libtpu describes a topology without a chip. Imports jax only in `devices`; knows nothing of programs."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from lemur_ray.train.pod.slices import Slice

_LIBTPU_NAMES = {"v5p": "v5"}


class NoLibtpu(Exception):
    """Raised when libtpu, the compiler for TPU, is not installed; the message names the extra that brings it."""


def environment(where: Slice, with_libtpu: bool, num_devices: int) -> dict[str, str]:
    """Variables to set before jax is imported: CPU as platform and no search for chips; without libtpu, ``num_devices``
    fake CPU devices. with_libtpu: whether libtpu describes the slice."""
    out = {"JAX_PLATFORMS": "cpu"}
    if with_libtpu:
        out |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": where.pod_type}
        out["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # no chip is used, so other processes may plan or train
    else:
        flags = os.environ.get("XLA_FLAGS", "")
        out["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={num_devices}".strip()
    return out


def has_libtpu() -> bool:
    return importlib.util.find_spec("libtpu") is not None


def devices(where: Slice, num_slices: int) -> list[Any]:
    """Descriptions of the devices of ``num_slices`` equal slices for jax's compiler, one per chip. Raises NoLibtpu, and
    ValueError for a topology that libtpu does not know."""
    if not has_libtpu():
        raise NoLibtpu("libtpu is not installed: pip install 'lemur-ray[tpu]' brings the compiler for TPU")
    from jax.experimental import topologies

    name = where.generation.name
    options: dict[str, Any] = {"num_slices": num_slices} if num_slices > 1 else {}
    if name == "v4":
        options["chip_config_name"] = "megacore"  # a chip is one device, not two
    topology = f"{_LIBTPU_NAMES.get(name, name)}:{where.topology}"
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=topology, **options).devices)
    except (RuntimeError, NotImplementedError) as error:
        raise ValueError(f"libtpu knows no topology {topology}: {str(error).splitlines()[0]}") from error
