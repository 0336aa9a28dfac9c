"""What workers find in their environment: of the driver what means the same on every host, folders as each has them.

On the driver's own host its folders hold, also where the node was started with others; on another host that host's
own, and its own place of the code, which the job tells (a working directory, or PYTHONPATH of its ``ray.init``).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import ray

from lemur_ray.config import MeshConfig
from lemur_ray.storage.bundles.host_path import host_identity
from lemur_ray.storage.file_system import bucket_environment
from lemur_ray.train.pod.allocator import allocator_environment
from lemur_ray.train.run.watchdog import PATIENCE

PASSED_ON = ("XLA_FLAGS", "JAX_CPU_COLLECTIVES_IMPLEMENTATION", "WANDB_BASE_URL", "WANDB_ENTITY", PATIENCE)
"""Variables of the driver that its workers share."""
FOLDERS = ("LEMUR_HOME", "LEMUR_DATA", "JAX_COMPILATION_CACHE_DIR")
"""Those of the driver that workers on its own host share."""
_OF_DRIVER = "LEMUR_FOLDERS_OF_DRIVER"


def worker_env(mesh: MeshConfig) -> dict[str, str]:
    """Environment of the workers, which each completes with ``settle``; and the platform when it is the CPU."""
    env = bucket_environment() | {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
    folders = {name: os.environ[name] for name in FOLDERS if os.environ.get(name)}
    env[_OF_DRIVER] = json.dumps({"host": host_identity(), "folders": folders})
    if not _job_tells_where_code_is():
        root = str(Path(__file__).resolve().parents[3])
        paths = [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    if not mesh.use_tpu and not mesh.use_gpu:
        env |= {"JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo", **allocator_environment()}
    elif os.environ.get("JAX_PLATFORMS"):
        env["JAX_PLATFORMS"] = os.environ["JAX_PLATFORMS"]
    return env


def settle() -> None:
    """In a worker, before anything is looked for: take over the driver's folders where they are this host's."""
    told = json.loads(os.environ.get(_OF_DRIVER) or "{}")
    if told and told["host"] == host_identity():
        os.environ.update(told["folders"])


def _job_tells_where_code_is() -> bool:
    """Whether every worker of the job finds the project without being told its place on this host."""
    given = ray.get_runtime_context().runtime_env if ray.is_initialized() else {}
    return bool(given.get("working_dir") or (given.get("env_vars") or {}).get("PYTHONPATH"))
