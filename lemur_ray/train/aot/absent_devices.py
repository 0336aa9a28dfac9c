"""Descriptions of devices that this machine lacks, for XLA's compiler, and the environment that jax needs for it.

libtpu describes the topology of a slice without a chip; of GPUs the description is a GpuTargetConfigProto in text form.
Imports jax only in `devices`; knows nothing of programs."""

import importlib.metadata
import importlib.util
import os
from typing import Any, NamedTuple

from lemur_ray.train.pod.chips import CHIPS
from lemur_ray.train.pod.gpu_hosts import Devices, GpuHosts

_LIBTPU_NAMES = {"v5p": "v5"}
PACKAGES = (
    "jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvrtc-cu12",
    "nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12", "nvidia-cublas-cu12",
)  # fmt: skip
"""Distributions that the compiler needs; `make gpu-compiler` installs them."""
FLAGS = "--xla_gpu_autotune_level=0"
"""XLA option that keeps the compiler from timing kernels, which needs a device."""


class NoLibtpu(Exception):
    """Raised when libtpu, the compiler for TPU, is not installed; the message names the extra that brings it."""


class NoGpuCompiler(ValueError):
    """Raised when packages of the compiler for GPUs are missing; the message has the pip command."""


class _Gpu(NamedTuple):
    """Properties of a GPU on which the compiler's decisions depend, as XLA and NVIDIA publish them."""

    capability: int
    """Major compute capability."""
    multiprocessors: int
    l2_bytes: int
    clock_ghz: float


_GPUS = {
    "h100": _Gpu(9, 132, 52_428_800, 1.98),
    "h200": _Gpu(9, 132, 52_428_800, 1.98),
    "b200": _Gpu(10, 148, 132_644_864, 1.965),
}


def environment(where: Devices, with_compiler: bool = True, num_devices: int = 1) -> dict[str, str]:
    """Variables to set before jax is imported: CPU as platform; for GPUs no timing of kernels, for a slice no search
    for chips, or without libtpu (``with_compiler`` False), ``num_devices`` fake CPU devices. XLA_FLAGS of this process
    are kept."""
    out = {"JAX_PLATFORMS": "cpu"}
    if not isinstance(where, GpuHosts) and with_compiler:
        out |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": where.pod_type}
        return {**out, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}  # no chip is used, so other processes may plan or train
    flag = FLAGS if isinstance(where, GpuHosts) else f"--xla_force_host_platform_device_count={num_devices}"
    return {**out, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()}


def has_libtpu() -> bool:
    return importlib.util.find_spec("libtpu") is not None


def check_gpu_compiler() -> None:
    """Raise NoGpuCompiler, naming the missing packages, unless the compiler for GPUs is installed."""
    present = {package: _is_installed(package) for package in PACKAGES}
    if missing := [package for package, there in present.items() if not there]:
        version = importlib.metadata.version("jax")
        pinned = [f"{package}=={version}" if package.startswith("jax-") else package for package in missing]
        raise NoGpuCompiler(
            "the compiler for GPUs is not installed here: make gpu-compiler puts it into .venv-gpu-compiler, whose "
            f"python then runs this job; or: pip install --no-deps {' '.join(pinned)}"
        )


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def devices(where: Devices, num_slices: int = 1) -> list[Any]:
    """Descriptions of all GPUs of ``where``, host by host, or of the chips of ``num_slices`` equal slices, for jax's
    compiler. Raises NoGpuCompiler, NoLibtpu, and ValueError for a topology that libtpu does not know."""
    if on_gpus := isinstance(where, GpuHosts):
        check_gpu_compiler()
    elif not has_libtpu():
        raise NoLibtpu("libtpu is not installed: pip install 'lemur-ray[tpu]' brings the compiler for TPU")
    from jax.experimental import topologies

    name = where.name
    if on_gpus:
        topology = f"{where.num_hosts}x1x{where.chips_per_host}"  # a host is what NVLink connects
        description = topologies.get_topology_desc(
            platform="cuda", topology_name=name, target_config=_described(name), topology=topology
        )
        return list(description.devices)
    options: dict[str, Any] = {"num_slices": num_slices} if num_slices > 1 else {}
    if name == "v4":
        options["chip_config_name"] = "megacore"  # a chip is one device, not two
    topology = f"{_LIBTPU_NAMES.get(name, name)}:{where.topology}"
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=topology, **options).devices)
    except (RuntimeError, NotImplementedError) as error:
        raise ValueError(f"libtpu knows no topology {topology}: {str(error).splitlines()[0]}") from error


def _described(name: str) -> str:
    """GpuTargetConfigProto of a GPU in text form. What is equal for all of them: limits of compute capability 9 on."""
    gpu, chip = _GPUS[name], CHIPS[name]
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  core_count: {gpu.multiprocessors} clock_rate_ghz: {gpu.clock_ghz} l2_cache_size: {gpu.l2_bytes}
  memory_bandwidth: {chip.hbm_bytes_per_s:.0f} device_memory_size: {chip.hbm_bytes}
  cuda_compute_capability {{ major: {gpu.capability} feature_extension: ACCELERATED_FEATURES }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{chip.kinds[0]}"
"""
