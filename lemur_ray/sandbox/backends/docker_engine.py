"""Clients of the Docker engine; every failure becomes SandboxUnavailable.

``DOCKER_HOST`` and related variables select the engine. It must run on this machine, because a sandbox is controlled
through a socket in a local folder."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lemur_ray.sandbox.sandbox import SandboxUnavailable

TIMEOUT_S = 60.0
OLDEST = "1.41"
"""API version (Docker 20.10) that is used to ask the engine for its own."""
SOCKET = "/var/run/docker.sock"
INSTALL = "apt-get install -y docker.io && systemctl start docker"
PACKAGE = "pip install 'lemur-ray[docker]'"


@contextmanager
def client(doing: str, timeout_s: float = TIMEOUT_S) -> Iterator[Any]:
    """Context manager that connects to the Docker engine and yields a ``docker.APIClient`` for one operation. ``doing``
    names the operation in error messages ("to list images"). Errors in the block become SandboxUnavailable: a missing
    package, an engine that refuses, fails, or does not answer within ``timeout_s`` seconds."""
    try:
        import docker
        import requests
    except ImportError as error:
        raise SandboxUnavailable(f"the Docker backend needs the package docker: {PACKAGE}") from error
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        raise SandboxUnavailable(f"DOCKER_HOST={host}: expected unix://..., the sandboxes' engine runs on this machine")
    opened = None
    try:
        _knock(host.removeprefix("unix://") or SOCKET, timeout_s)
        opened = docker.APIClient(version=OLDEST, timeout=timeout_s, **docker.utils.kwargs_from_env())
        newest = opened.version(api_version=False)["ApiVersion"]
        if newest != OLDEST:
            opened.close()
            opened = docker.APIClient(version=newest, timeout=timeout_s, **docker.utils.kwargs_from_env())
        yield opened
    except docker.errors.APIError as error:
        raise SandboxUnavailable(f"the Docker engine refuses {doing}: {error.explanation or error}") from error
    except requests.RequestException as error:
        raise SandboxUnavailable(f"the Docker engine failed at {doing}: {error}") from error
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxUnavailable(f"no Docker engine answers ({error}): {INSTALL}") from error
    finally:
        if opened is not None:
            opened.close()


def _knock(path: str, timeout_s: float) -> None:
    """Raise OSError if nothing listens at the socket ``path``; the docker package would leak its own socket then."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(timeout_s)
        try:
            probe.connect(path)
        except OSError as error:
            raise OSError(f"{path}: {error.strerror or error}") from error
