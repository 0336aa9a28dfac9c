"""Whose containers are whose: started a few at a time, labelled with the process that made them, removed for good.

Knows nothing of what runs in a container.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from lemur_ray.host.file_lock import hold
from lemur_ray.sandbox.backends import docker_engine, slots
from lemur_ray.sandbox.sandbox import SandboxError

RUN, MAKER = "lemur.run", "lemur.maker"
"""Labels: whose run it is, and which process made it."""
STARTS = 4
"""Containers that all processes of this user start at a time: an engine under more than that turns unreliable."""
REMOVE_S = 20.0
unsure: set[str] = set()
"""Names of containers of this process that the engine may still make or keep: the next start looks."""


def remove(container: str) -> None:
    """Remove a container and wait until it is gone. SandboxUnavailable where the engine does not."""
    with contextlib.suppress(SandboxError):
        with docker_engine.client("to remove a container", REMOVE_S) as api:
            api.remove_container(container, force=True, v=True)
        return
    with docker_engine.client("to wait for the end of a container") as api:  # its own removal was under way
        api.wait(container, timeout=REMOVE_S, condition="removed")


def reap() -> list[str]:
    """Remove containers whose maker is dead, and this process's that it could not remove; their ids.

    Of another process namespace nobody here knows the dead.
    """
    removed = []
    with docker_engine.client("to list containers") as api:
        found = api.containers(all=True, filters={"label": MAKER})
    for container in found:
        maker = container["Labels"][MAKER]
        pid, _, its_namespace = maker.partition("@")
        doubtful = unsure & {name.removeprefix("/") for name in container["Names"] or ()}
        if doubtful or (its_namespace == namespace() and maker_of(int(pid.partition(":")[0])) != maker):
            with contextlib.suppress(SandboxError):  # somebody else may be removing it
                remove(container["Id"])
                unsure.difference_update(doubtful)
                removed.append(container["Id"])
    return removed


def namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def maker_of(pid: int) -> str:
    return f"{pid}:{slots.started(pid)}@{namespace()}"


@contextlib.contextmanager
def lane(number: int) -> Iterator[None]:
    """Wait for one of the ``STARTS`` places in which a container may be started."""
    with hold(slots.folder() / f"start-{number % STARTS}", wait_s=None):
        yield
