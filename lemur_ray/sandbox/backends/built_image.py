"""Builds Docker images from folders with a Dockerfile, tagged with the hash of the folder's content.

A Dockerfile's FROM image must be on this machine or in a registry that the engine can reach.
"""

from __future__ import annotations

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
    """Hash (32 hex digits) over names, executable bits, link targets and contents of all files in a folder."""
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
    """Build the image of the Dockerfile in ``folder``, unless the engine has one of this content; returns its name.
    Raises SandboxUnavailable with the last lines of a failed build."""
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
    """Whether the engine has an image of this name. Raises SandboxUnavailable if the engine does not answer."""
    with docker_engine.client("to list images") as api:
        return bool(api.images(name=name))


def ensure_pulled(name: str, build_s: float) -> str:
    """Pull the image ``name`` from its registry, unless the engine has it; returns ``name``. Raises
    SandboxUnavailable."""
    if not has_image(name):
        with docker_engine.client(f"to fetch the image {name}", timeout_s=build_s) as api:
            api.pull(name)
    return name
