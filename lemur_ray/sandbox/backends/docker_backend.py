"""The Docker backend: a container instead of bubblewrap, with the same keeper and first process in it.

The container has its own userland (``docker_image.py``) and uid, no capability, no new privileges, a read-only root, no
network unless requested, and the engine's control groups. The keeper creates a user namespace and generations in it, so
resets, quotas, results and errors are those of bubblewrap.

The keeper is controlled through a socket, not through the engine: steps and resets work without the engine, and the end
of this process ends the container. The engine only starts and removes containers."""

import contextlib
import json
import os
import platform
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lemur_ray.sandbox import inside
from lemur_ray.sandbox.backends import (
    cgroup,
    docker_containers,
    docker_engine,
    docker_image,
    keeper_client,
    python_inside,
    slots,
)
from lemur_ray.sandbox.backends.connection import ConnectionLost
from lemur_ray.sandbox.backends.driven_sandbox import DrivenSandbox
from lemur_ray.sandbox.inside import container_entry, kernel, syscall_filter
from lemur_ray.sandbox.sandbox import Capabilities, SandboxError, SandboxSpec, SandboxUnavailable

CODE = "/inside"
BOOT = f"import sys; sys.path.insert(0, '{CODE}'); from lemur_ray.sandbox.inside.container_entry import main; main()"
SETUP_CALLS = {"mount", "unshare", "chroot", "sethostname", "ptrace"}
"""Calls that the engine's filter must allow for the keeper; the filter of the policy's programs refuses them."""
NO_NAMESPACE = (
    "no user namespace can be made in a container here: sysctl -w kernel.unprivileged_userns_clone=1 "
    "kernel.apparmor_restrict_unprivileged_userns=0 user.max_user_namespaces=10000"
)


class DockerBackend:
    """Backend of ``sandbox.Backend`` that opens each sandbox as a container of the Docker engine."""

    name = "docker"

    def __init__(self) -> None:
        self._known: dict[str, Any] | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Guarantees of this Docker engine, queried at first use. Raises SandboxUnavailable if no engine answers."""
        if self._known is None:
            with docker_engine.client("to list its capabilities") as api:
                self._known = api.info()
        reasons = {}
        if remapped(self._known):
            reasons["own_uid"] = "the engine maps users into a range of its own: its sandboxes are one user to the host"
        if platform.machine() not in syscall_filter.ARCHITECTURES:
            reasons["seccomp"] = f"no system call table for {platform.machine()}"
        if not self._known.get("MemoryLimit"):
            reasons["mem_total"] = f"the engine bounds no memory: {keeper_client.MEMORY_WATCH_NOTE}"
        given = {name: name not in reasons for name in ("own_uid", "seccomp", "mem_total")}
        return Capabilities(**given, reasons=reasons)

    def open(self, spec: SandboxSpec) -> DrivenSandbox:
        capabilities = self.capabilities
        assert self._known is not None
        return DrivenSandbox(DockerHousing(spec, self._known), spec, capabilities)


def remapped(info: Mapping[str, Any]) -> bool:
    """Whether the engine maps user ids of containers to others on the host (``userns-remap``, rootless engines).
    ``info``: answer of the engine's ``info`` call."""
    options = info.get("SecurityOptions") or ()
    return any(option.partition(",")[0] in ("name=userns", "name=rootless") for option in options)


class DockerHousing(keeper_client.Housing):
    """The container in which one sandbox lives, with its keeper."""

    def __init__(self, spec: SandboxSpec, info: Mapping[str, Any]) -> None:
        self.image = docker_image.ensure(spec.image)
        packed = keeper_client.packed_trees(spec)
        super().__init__(spec, python_inside.this_interpreter()[0] if self._needs_python() else None)
        self.summed = bool(info.get("MemoryLimit"))
        self.uid = 1000 if remapped(info) else self.slot.uid
        self.container = ""
        try:
            docker_containers.reap()
            with self._listening() as listener:
                self._start()
                self.keeper = keeper_client.KeeperClient(self._accepted(listener))
            self._greet(packed)
        except BaseException:
            self.destroy()
            raise

    @contextlib.contextmanager
    def _listening(self) -> Iterator[socket.socket]:
        path = self._channel_path()
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            path.chmod(0o666)  # the folder is closed to others; the container's user sees this file alone
            listener.listen(1)
            listener.settimeout(0.5)
            try:
                yield listener
            finally:
                path.unlink(missing_ok=True)

    def _channel_path(self) -> Path:
        return slots.folder() / f"{self.slot.number}.channel"

    def _start(self) -> None:
        with docker_containers.start_slot(self.slot.number), docker_engine.client("to start a container") as api:
            config = self._config(api)
            # With a known name the container can be removed even if the engine's answer is lost.
            self.container = f"lemur-{self.uid}-{self.slot.number}-{os.urandom(6).hex()}"
            self.slot.record(run=self.spec.run, container=self.container)
            api.create_container_from_config(config, name=self.container)
            api.start(self.container)
            pid = int(api.inspect_container(self.container)["State"]["Pid"])
        self.cgroup = cgroup.of_process(pid) if self.summed else None
        if os.geteuid() == 0 and (begun := slots.start_time(pid)) is not None:
            self.slot.record(run=self.spec.run, container=self.container, process=[pid, begun])

    def _config(self, api: Any) -> dict[str, Any]:
        from docker import types

        spec, limits = self.spec, self.spec.limits
        shown = {container_entry.CHANNEL: self._channel_path()}
        shown[f"{CODE}/lemur_ray/sandbox/inside"] = Path(inside.__file__).parent
        shown |= {f"{container_entry.MOUNTS}/{number}": path for number, path in enumerate(self.mounts.values())}
        if spec.rootfs is not None:
            shown[container_entry.ROOTFS] = spec.rootfs
        prefix, program = python_inside.this_interpreter()
        if self._needs_python():
            shown[python_inside.INSIDE] = prefix
        else:
            program = f"/usr/bin/python{python_inside.VERSION}"
        memory = limits.memory_bytes + limits.disk_bytes + keeper_client.OURS_BYTES
        host = api.create_host_config(
            network_mode="host" if spec.network else "none",
            mem_limit=memory if self.summed else None,
            memswap_limit=memory if self.summed else None,
            pids_limit=limits.processes + 16,
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges", f"seccomp={call_filter()}", "apparmor=unconfined"],
            mounts=[types.Mount(at, str(path.resolve()), "bind", read_only=True) for at, path in shown.items()],
            auto_remove=True,
            log_config=types.LogConfig(type="none"),
        )
        # The kernel allows a generation its own /proc only if no part of the container's /proc is masked.
        host |= {"MaskedPaths": [], "ReadonlyPaths": []}
        return api.create_container_config(
            self.image.name,
            [program, "-I", "-S", "-c", BOOT],
            user=f"{self.uid}:{self.uid}",
            environment=python_inside.environment() if self._needs_python() else {},
            labels={docker_containers.RUN: spec.run, docker_containers.MAKER: docker_containers.maker_of(os.getpid())},
            host_config=host,
        )

    def _accepted(self, listener: socket.socket) -> socket.socket:
        deadline = time.monotonic() + keeper_client.START_S
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            with docker_engine.client("to look at a container") as api:
                if not api.inspect_container(self.container)["State"]["Running"]:
                    break
        raise SandboxUnavailable(
            f"the first process of a container of {self.image.name} does not come up: does the engine run on this "
            f"machine, and is {slots.folder()} the same folder to it?"
        )

    def _greet(self, packed: bytes) -> None:
        spec = self.spec
        if spec.rootfs is None:
            names = ["usr", *keeper_client.MERGED]
        else:
            names = sorted(path.name for path in spec.rootfs.iterdir() if path.name not in keeper_client.NOT_OF_ROOTFS)
        order = {
            "uid": 0 if spec.as_root else 1000,
            "held": [kernel.CAPABILITIES[name] for name in keeper_client.HELD],
            "rootfs": spec.rootfs is not None,
            "names": names,
            "etc": [] if spec.rootfs is not None else list(keeper_client.etc_shown(spec)),
        }
        assert self.keeper
        try:
            self.keeper.greet(packed, order)
        except ConnectionLost as error:
            outside = isinstance(error, keeper_client.KeeperFailed) and not error.in_namespace
            hint = f"; {NO_NAMESPACE}" if outside else ""
            raise SandboxUnavailable(f"a container starts, but no sandbox in it: {error}{hint}") from error

    def _needs_python(self) -> bool:
        return self.image.python != python_inside.VERSION

    def destroy(self) -> None:
        if self.keeper:
            self.keeper.close()
        if self.container:
            try:
                docker_containers.remove(self.container)
            except SandboxError:  # container or engine are gone; a started container ends with its socket
                if self.keeper is None:
                    docker_containers.possibly_left.add(self.container)
            self.container = ""
        self.slot.release()


def call_filter() -> str:
    """The seccomp profile, as JSON text for the engine, of the container that holds a sandbox: the filter for code of
    the policy (``inside/syscall_filter.py``), which here allows the calls that the keeper needs."""
    names = sorted(set(syscall_filter.REFUSED) - SETUP_CALLS)
    refused = {"names": names, "action": "SCMP_ACT_ERRNO"}
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]})
