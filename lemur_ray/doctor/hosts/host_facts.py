"""Facts that a host collects about itself.

Uses the standard library alone: its source is sent to hosts that may hold another version of the project, or none."""

import hashlib
import importlib.machinery
import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TPU_VARIABLES = ("TPU_NAME", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE")
PACKAGES_OF_OURS = ("lemur_ray", "envs")
_SOURCES = (".py", ".toml", ".txt", ".cc", ".h")
"""Suffixes of files in the source hash: code, tables, prompts and kernels."""


@dataclass(frozen=True)
class HostFacts:
    """Facts about one host of a cluster: its name and address, Python and packages, disks, clock, TPU, and what Ray
    knows of it. Sizes in bytes, times in seconds."""

    name: str
    address: str = ""
    python: str = ""
    project: str = ""
    """Version and hash of the project that a worker imports there without a working directory; empty: none."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Package name (lower case, with ``-``) -> version."""
    chips: int = 0
    """Number of TPU device files."""
    tpu: Mapping[str, str] = field(default_factory=dict)
    """The environment variables of ``TPU_VARIABLES`` that are set."""
    unresolved: tuple[str, ...] = ()
    """Names in TPU_WORKER_HOSTNAMES that do not resolve."""
    disk_free: Mapping[str, int] = field(default_factory=dict)
    """Folder (LEMUR_HOME, Ray's temporary folder) -> free bytes."""
    shm_bytes: int = 0
    """Size of /dev/shm."""
    clock_ahead_s: float = 0.0
    """Seconds ahead of the asking process's clock; 0 if not measured."""
    clock_unsure_s: float = 0.0
    """Uncertainty of ``clock_ahead_s`` in seconds."""
    cpus: float = 0.0
    store_bytes: int = 0
    tpus: float = 0.0
    """``cpus``, ``store_bytes`` and ``tpus`` are Ray's resources of the host."""
    is_head: bool = False


def here(ray_folder: str = "") -> dict[str, Any]:
    """Fields of ``HostFacts`` that a host collects itself, by name. ``ray_folder``: Ray's temporary folder or empty."""
    home = Path(os.environ.get("LEMUR_HOME") or Path.home() / "lemur")
    tpu = {name: os.environ[name] for name in TPU_VARIABLES if os.environ.get(name)}
    hosts = [name.strip() for name in tpu.get("TPU_WORKER_HOSTNAMES", "").split(",")]
    return {
        "name": socket.gethostname(),
        "python": platform.python_version(),
        "project": project(sys.path),
        "packages": packages(),
        "chips": len([*Path("/dev").glob("accel*"), *Path("/dev/vfio").glob("[0-9]*")]),
        "tpu": tpu,
        "unresolved": tuple(name for name in hosts if name and not _has_address(name)),
        "disk_free": {str(folder): _free(folder) for folder in (home, Path(ray_folder or "/tmp"))},
        "shm_bytes": shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0,
    }


class Asked:
    """Ray actor that runs on each host of a cluster and answers the survey."""

    def here(self, ray_folder: str) -> dict[str, Any]:
        return here(ray_folder)

    def clock(self) -> float:
        return time.time()

    def bucket(self, url: str, environment: Mapping[str, str]) -> Mapping[str, Any]:
        """Test access to the bucket ``url`` with the project that this host has or the job brought: the result of
        ``bucket_access.check_clients``. A project of another version may return sentences alone."""
        try:
            from lemur_ray.storage.bucket_access import check_clients
        except ImportError as error:
            return {"project": f"has none that could look ({error}): ray job submit --working-dir . brings one"}
        return check_clients(url, environment)


def packages() -> dict[str, str]:
    """Installed packages: name (lower case, with ``-``) -> version."""
    versions: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        if name := one.metadata["Name"]:
            versions.setdefault(name.lower().replace("_", "-"), one.version)
    return versions


def project(path: Sequence[str]) -> str:
    """Version and source hash of this project's packages along the import ``path``; empty if one of them is absent."""
    digest, version = hashlib.sha256(), "no version"
    for name in PACKAGES_OF_OURS:
        spec = importlib.machinery.PathFinder.find_spec(name, list(path))
        if spec is None or not spec.origin:
            return ""
        folder = Path(spec.origin).parent
        for file in sorted(path for path in folder.rglob("*") if path.suffix in _SOURCES):
            digest.update(f"{name}/{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes() + b"\0")
        if name == PACKAGES_OF_OURS[0]:
            version = _version(folder)
    return f"{version}, source {digest.hexdigest()[:12]}"


def _version(folder: Path) -> str:
    """The version in pyproject.toml, else that of the installed package."""
    try:
        lines = (folder.parent / "pyproject.toml").read_text().splitlines()
        return next(line.split('"')[1] for line in lines if line.startswith("version = "))
    except (OSError, StopIteration):
        return packages().get("lemur-ray", "no version")


def _has_address(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


def _free(folder: Path) -> int:
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    return shutil.disk_usage(place).free
