"""Builds Docker images from folders with a Dockerfile, tagged with the hash of the folder's content.

A Dockerfile's FROM image must be on this machine or in a registry that the engine can reach."""

import hashlib
import logging
import os
from pathlib import Path

from lemur_ray.host.file_lock import hold
from lemur_ray.sandbox.backends import docker_engine, slots
from lemur_ray.sandbox.sandbox import SandboxUnavailable

REPOSITORY = "lemur-task"
log = logging.getLogger(__name__)


def content_hash(folder: Path) -> str:
    """SHA-256, cut to 32 hex digits, of all files below ``folder``: relative paths, executable bits, link targets and
    contents. Empty folders, times and owners do not count."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=lambda one: one.relative_to(folder).as_posix()):
        if path.is_symlink():
            kind, content = "l", os.readlink(path).encode()
        elif path.is_file():
            kind, content = "x" if os.access(path, os.X_OK) else "f", path.read_bytes()
        else:
            continue
        named = f"{kind} {path.relative_to(folder).as_posix()}\0{len(content)}\0"
        digest.update(named.encode("utf-8", "surrogateescape") + content)
    return digest.hexdigest()[:32]


def ensure_built(folder: Path, build_s: float) -> str:
    """Build the Docker image of ``folder``/Dockerfile unless the engine has one of this content; returns its name,
    ``lemur-task:HASH``. Processes that need the same image wait for the first one's build. ``build_s``: time limit of a
    build in seconds. Raises SandboxUnavailable with the last lines of a failed build."""
    name = f"{REPOSITORY}:{content_hash(folder)}"
    if has_image(name):
        return name
    with hold(slots.folder() / f"{name.replace(':', '-')}.lock", wait_s=None):
        if has_image(name):  # another process built it meanwhile
            return name
        log.warning("building the image %s from %s (once)", name, folder)
        with docker_engine.client("to build an image", timeout_s=build_s) as api:
            output: list[str] = []
            for line in api.build(path=str(folder), tag=name, rm=True, forcerm=True, decode=True):
                output = [*output[-20:], str(line.get("error") or line.get("stream") or "").strip()]
                if "error" in line:
                    words = " / ".join(filter(None, output[-4:]))
                    raise SandboxUnavailable(f"{folder}/Dockerfile cannot be built here: {words}")
    return name


def has_image(name: str) -> bool:
    """Whether the Docker engine has the image ``name`` (repository:tag). Raises SandboxUnavailable if the engine does
    not answer."""
    with docker_engine.client("to list images") as api:
        return bool(api.images(name=name))


def ensure_pulled(name: str, build_s: float) -> str:
    """Pull the image ``name`` (repository:tag) from its registry unless the Docker engine has it; returns ``name``.
    ``build_s``: time limit in seconds. Raises SandboxUnavailable if the engine or the registry fails."""
    if not has_image(name):
        with docker_engine.client(f"to fetch the image {name}", timeout_s=build_s) as api:
            api.pull(name)
    return name
