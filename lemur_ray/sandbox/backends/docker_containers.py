"""Life cycle of containers: limits concurrent starts, labels each with its owner, and removes those of dead owners.

Knows nothing of what runs in a container."""

import contextlib
import os
from collections.abc import Iterator

from lemur_ray.host.file_lock import hold
from lemur_ray.sandbox.backends import docker_engine, slots
from lemur_ray.sandbox.sandbox import SandboxError

RUN, MAKER = "lemur.run", "lemur.maker"
"""Labels of a container: its run, and the process that created it."""
STARTS = 4
"""Maximum concurrent starts by all processes of this user; with more, engines become unreliable."""
REMOVE_S = 20.0
possibly_left: set[str] = set()
"""Names of this process's containers that may still exist; the next ``reap`` removes them."""


def remove(container: str) -> None:
    """Kill and remove a container (its id or name) with its volumes, and wait up to 20 s until it is gone; a removal
    that is under way is waited for. Raises SandboxUnavailable if the engine fails or the container does not exist."""
    with contextlib.suppress(SandboxError):
        with docker_engine.client("to remove a container", REMOVE_S) as api:
            api.remove_container(container, force=True, v=True)
        return
    with docker_engine.client("to wait for the end of a container") as api:  # its own removal was under way
        api.wait(container, timeout=REMOVE_S, condition="removed")


def reap() -> list[str]:
    """Remove containers of this project whose creating process is dead, and those of this process that may still exist
    (``possibly_left``); returns the removed ids, possibly none. Containers created in another process namespace stay:
    their creators are not visible here. Raises SandboxUnavailable if the engine cannot list containers."""
    removed = []
    with docker_engine.client("to list containers") as api:
        containers = api.containers(all=True, filters={"label": MAKER})
    for container in containers:
        maker = container["Labels"][MAKER]
        pid, _, its_namespace = maker.partition("@")
        doubtful = possibly_left & {name.removeprefix("/") for name in container["Names"] or ()}
        if doubtful or (its_namespace == namespace() and maker_of(int(pid.partition(":")[0])) != maker):
            with contextlib.suppress(SandboxError):  # another process may be removing it
                remove(container["Id"])
                possibly_left.difference_update(doubtful)
                removed.append(container["Id"])
    return removed


def namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def maker_of(pid: int) -> str:
    return f"{pid}:{slots.start_time(pid)}@{namespace()}"


@contextlib.contextmanager
def start_slot(number: int) -> Iterator[None]:
    """Context manager that holds one of ``STARTS`` (4) lock files while a container is started, after waiting for it
    without limit. ``number``: any integer; it selects the lock by its remainder."""
    with hold(slots.folder() / f"start-{number % STARTS}", wait_s=None):
        yield
