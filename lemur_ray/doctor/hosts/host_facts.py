"""What one host says of itself. Judges nothing.

Stands alone: it is sent to hosts that may hold another version of the project, or none.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class HostFacts:
    """One host of a cluster. Sizes in bytes, clocks in seconds since 1970."""

    name: str
    address: str = ""
    python: str = ""
    project: str = ""
    """Version and hash of the source that a worker imports there without a working directory; empty: there is none."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Version by name, in lower case with ``-``."""
    chips: int = 0
    """Device files of TPU chips."""
    tpu: Mapping[str, str] = field(default_factory=dict)
    """Those of ``TPU_VARIABLES`` that are set there."""
    unresolved: tuple[str, ...] = ()
    """Of the names in TPU_WORKER_HOSTNAMES those that it finds no address for."""
    disk_free: Mapping[str, int] = field(default_factory=dict)
    """By folder: LEMUR_HOME, and where Ray and Python write what is temporary."""
    shm_bytes: int = 0
    """Size of its /dev/shm."""
    clock_ahead_s: float = 0.0
    """Of the clock of who asked; 0 where nobody measured it."""
    clock_unsure_s: float = 0.0
    """By so much the number above may be wrong."""
    cpus: float = 0.0
    store_bytes: int = 0
    tpus: float = 0.0
    """What Ray hands out there: cores, object store, chips."""
    is_head: bool = False


def here(ray_folder: str = "") -> dict[str, Any]:
    """The fields of ``HostFacts`` that a host knows by itself. ``ray_folder``: where its Ray writes."""
    home = Path(os.environ.get("LEMUR_HOME") or Path.home() / "lemur")
    tpu = {name: os.environ[name] for name in TPU_VARIABLES if os.environ.get(name)}
    return {
        "name": socket.gethostname(),
        "python": platform.python_version(),
        "project": project(sys.path),
        "packages": packages(),
        "chips": len([*Path("/dev").glob("accel*"), *Path("/dev/vfio").glob("[0-9]*")]),
        "tpu": tpu,
        "unresolved": tuple(name for name in _hostnames(tpu) if not _has_address(name)),
        "disk_free": {str(folder): _free(folder) for folder in (home, Path(ray_folder or "/tmp"))},
        "shm_bytes": shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0,
    }


class Asked:
    """What is started on a host to answer."""

    def here(self, ray_folder: str) -> dict[str, Any]:
        return here(ray_folder)

    def clock(self) -> float:
        return time.time()

    def bucket(self, url: str, environment: Mapping[str, str]) -> Mapping[str, Any]:
        """The result of ``bucket_access.tried`` in the project that this host has or the job brought.

        A project of another version may return sentences alone.
        """
        try:
            from lemur_ray.storage.bucket_access import tried
        except ImportError as error:
            return {"project": f"has none that could look ({error}): ray job submit --working-dir . brings one"}
        return tried(url, environment)


def packages() -> dict[str, str]:
    """What is installed."""
    found: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        if name := one.metadata["Name"]:
            found.setdefault(name.lower().replace("_", "-"), one.version)
    return found


def project(path: Sequence[str]) -> str:
    """Version and hash of the packages of ours that ``import`` would find along ``path``; empty where one is absent."""
    digest, version = hashlib.sha256(), "no version"
    for name in PACKAGES_OF_OURS:
        spec = importlib.machinery.PathFinder.find_spec(name, list(path))
        if spec is None or not spec.origin:
            return ""
        folder = Path(spec.origin).parent
        for file in sorted(folder.rglob("*.py")):
            digest.update(f"{name}/{file.relative_to(folder).as_posix()}\0".encode() + file.read_bytes() + b"\0")
        if name == PACKAGES_OF_OURS[0]:
            version = _version(folder)
    return f"{version}, source {digest.hexdigest()[:12]}"


def _version(folder: Path) -> str:
    """As the tree's own project file says, else as installed."""
    try:
        lines = (folder.parent / "pyproject.toml").read_text().splitlines()
        return next(line.split('"')[1] for line in lines if line.startswith("version = "))
    except (OSError, StopIteration):
        return packages().get("lemur-ray", "no version")


def _hostnames(tpu: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in tpu.get("TPU_WORKER_HOSTNAMES", "").split(",") if name.strip()]


def _has_address(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


def _free(folder: Path) -> int:
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    return shutil.disk_usage(place).free
