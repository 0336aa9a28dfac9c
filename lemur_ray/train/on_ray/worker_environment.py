"""Environment variables of workers: those of the driver that hold on any host, and folders of the worker's host.

On the driver's host its folders win over those the Ray node was started with. Other hosts use their own folders, and
find the code through the job (its working directory, or PYTHONPATH of its ``ray.init``)."""

import json
import os
from pathlib import Path

import ray

from lemur_ray.config import MeshConfig
from lemur_ray.storage.bundles.host_path import host_identity
from lemur_ray.storage.file_system import bucket_environment
from lemur_ray.train.pod.compiler_options import FLAGS, MEMORY_FRACTION_NAME, memory_fraction
from lemur_ray.train.run.watchdog import PATIENCE

PASSED_ON = (*FLAGS, "JAX_CPU_COLLECTIVES_IMPLEMENTATION", "WANDB_BASE_URL", "WANDB_ENTITY", PATIENCE)
"""Variables of the driver that all its workers inherit."""
PASSED_ON_PREFIXES = ("NCCL_", "XLA_PYTHON_CLIENT_")
"""Prefixes of further such variables."""
FOLDERS = ("LEMUR_HOME", "LEMUR_DATA", "JAX_COMPILATION_CACHE_DIR")
"""Variables of the driver that only workers on its own host inherit."""
_DRIVER_FOLDERS = "LEMUR_FOLDERS_OF_DRIVER"
"""Variable with the driver's host and its FOLDERS, as JSON."""
_TUNABLES = {
    "glibc.malloc.hugetlb": 1,  # ask for transparent huge pages where the kernel leaves it to programs
    "glibc.malloc.mmap_max": 0,  # large blocks come from the heap ..
    "glibc.malloc.trim_threshold": 2**40,  # .. which is not given back ..
    "glibc.malloc.arena_max": 1,  # .. and of which there is one: others are limited to 64 MiB
}
"""Settings of glibc's allocator on CPU: keep scratch memory, in large pages. XLA's CPU client allocates a scratch
buffer per execution; by default glibc maps large blocks and unmaps them when freed, so every step faults tens of
megabytes in again: 22,000 page faults and a fifth of the CPU time of the nano recipe. glibc reads them when a process
starts."""


def worker_env(mesh: MeshConfig) -> dict[str, str]:
    """Environment variables of the workers; each completes them with ``adopt_driver_folders``. On CPU they also set the
    platform, on GPU the share of memory that jax allocates."""
    passed_on = [name for name in os.environ if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)]
    env = bucket_environment() | {name: os.environ[name] for name in passed_on if os.environ[name]}
    folders = {name: os.environ[name] for name in FOLDERS if os.environ.get(name)}
    env[_DRIVER_FOLDERS] = json.dumps({"host": host_identity(), "folders": folders})
    if not _job_distributes_code():
        root = str(Path(__file__).resolve().parents[3])
        paths = [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    if not mesh.use_tpu and not mesh.use_gpu:
        env |= {"JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo", **allocator_environment()}
    if mesh.use_gpu:
        env[MEMORY_FRACTION_NAME] = str(memory_fraction())
    if (mesh.use_tpu or mesh.use_gpu) and os.environ.get("JAX_PLATFORMS"):
        env["JAX_PLATFORMS"] = os.environ["JAX_PLATFORMS"]
    return env


def adopt_driver_folders() -> None:
    """In a worker on the driver's host, set the environment variables of the driver's folders; on any other host do
    nothing. To be called before any folder is used."""
    driver = json.loads(os.environ.get(_DRIVER_FOLDERS) or "{}")
    if driver and driver["host"] == host_identity():
        os.environ.update(driver["folders"])


def _job_distributes_code() -> bool:
    """Whether the Ray job itself makes the project importable on every worker."""
    environment = ray.get_runtime_context().runtime_env if ray.is_initialized() else {}
    return bool(environment.get("working_dir") or (environment.get("env_vars") or {}).get("PYTHONPATH"))


def allocator_environment() -> dict[str, str]:
    """Environment variables ({GLIBC_TUNABLES: value}) for a new process; tunables that are already set are kept."""
    given = [item for item in os.environ.get("GLIBC_TUNABLES", "").split(":") if item]
    named = {item.partition("=")[0] for item in given}
    ours = [f"{name}={value}" for name, value in _TUNABLES.items() if name not in named]
    return {"GLIBC_TUNABLES": ":".join(given + ours)}
