"""A container in which the policy is root, may write everywhere and may leave programs running.

For tasks of external benchmarks with their own image. Isolation is the engine's: its default capabilities and system
call filter, control groups for memory, processors and processes, no network unless requested; disk is limited only if
the engine's storage does it. Prefer a sandbox (``sandbox.py``), which guarantees more, if it suffices.

``judge`` ends the policy's programs and runs a judge's program in a new container over the files that the policy
left; the judge's own folders there are new and empty. Knows no benchmark."""

import contextlib
import io
import os
import select
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lemur_ray.sandbox.backends import docker_containers, docker_engine
from lemur_ray.sandbox.output import HeadTail
from lemur_ray.sandbox.sandbox import SandboxDestroyed, SandboxError

OUTPUT_BYTES = 65_536
KILL_AT_BYTES = 10 * 2**20
GRACE_S = 10.0
"""Seconds beyond its limit after which a command and all other programs in the container are killed."""
WAIT_S = 15.0
MAX_READ_BYTES = 2**20
SHELLS = frozenset(
    f"{folder}/{name}" for folder in ("/bin", "/usr/bin") for name in ("bash", "sh", "dash", "busybox")
) | {"/etc/ld.so.preload"}
"""Files that start the judge's program; if the policy has changed one, nothing is judged."""


@dataclass(frozen=True)
class ContainerSettings:
    """Resources of a container: memory without swap in bytes, processors, maximum number of processes, environment
    variables. ``network``: True for the engine's default network, False for none."""

    memory_bytes: int = 2 * 2**30
    cpus: float = 1.0
    processes: int = 4096
    network: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    """User of the commands; empty for the image's."""


@dataclass(frozen=True)
class CommandResult:
    """Result of a command. ``exit_code``: None if it was killed, then ``note`` states why. ``output``: stdout and
    stderr as text, at most 64 KiB (head and tail)."""

    exit_code: int | None
    output: str
    note: str = ""


@dataclass(frozen=True)
class JudgeResult:
    """Result of a judge's program: how it ran, and the content of the requested ``files`` by path. Files that it did
    not write, or larger than 1 MiB, are absent."""

    ran: CommandResult
    files: Mapping[str, bytes] = field(default_factory=dict)


class WholeMachine:
    """One running container of the Docker image ``image``, removed by ``close``. ``run``: label of the run. All methods
    but ``close`` raise SandboxUnavailable if the engine fails. ``machine``: its resources."""

    def __init__(self, image: str, machine: ContainerSettings, run: str = "") -> None:
        self._machine, self._run = machine, run
        self._committed = ""
        docker_containers.reap()
        with docker_engine.client("to look at an image") as api:
            config = api.inspect_image(image)["Config"]
        self.entrypoint: Sequence[str] = config.get("Entrypoint") or ()
        self._name = self._start_container(image, ["sleep", "infinity"])
        if self.entrypoint:  # services of the image: started once, not again for the judge
            self._start_services()

    def run(self, script: str, limit_s: float) -> CommandResult:
        """Run a bash script in the image's working folder; background programs continue afterwards. After ``limit_s``
        seconds the script is killed; if that fails, or after 10 MiB of output, every program in the container is.
        Raises SandboxDestroyed if the policy has ended the container."""
        limited = ["timeout", "-s", "KILL", str(max(1, int(limit_s))), "/bin/bash", "-c", script]
        with docker_engine.client("to run a command", timeout_s=limit_s + GRACE_S) as api:
            made = self._create_exec(api, limited)
            kept, why = HeadTail(OUTPUT_BYTES), ""
            began = time.monotonic()
            for chunk in _output_frames(api, made, began + limit_s + GRACE_S / 2):
                kept.add(chunk)
                if kept.produced > KILL_AT_BYTES:
                    why = f"ended: more than {KILL_AT_BYTES >> 20} MiB of output"
                    break
            state = api.exec_inspect(made)
        output = kept.result()[0].decode("utf-8", "replace")
        if why or state["Running"]:
            self._end_everything()
            return CommandResult(
                None, output, (why or _timed_out(limit_s)) + "; every program in the container was ended"
            )
        if state["ExitCode"] == 137 and time.monotonic() - began >= limit_s - 1:
            return CommandResult(None, output, _timed_out(limit_s))
        return CommandResult(state["ExitCode"], output)

    def upload(self, folder: Path, at: str) -> None:
        """Copy the content of ``folder``, on this machine, to the path ``at`` in the container, owned by root."""
        with docker_engine.client("to copy files") as api:
            api.put_archive(self._name, "/", _tar_of(folder, at))

    def judge(
        self, tests: Path, at: str, script: str, limit_s: float, wanted: Sequence[str], machine: ContainerSettings
    ) -> JudgeResult:
        """Kill all programs of the container and run a judge in a new container over the files that the policy left.
        ``tests``: folder copied to ``at``; ``script``: file in it, run by bash for at most ``limit_s`` seconds;
        ``wanted``: paths of files to return, in folders that are new and empty like ``at``; ``machine``: the new
        container's resources. If the policy has replaced a shell, nothing is run and the note states it."""
        with docker_engine.client("to end a policy's programs") as api:
            if api.inspect_container(self._name)["State"]["Running"]:
                api.kill(self._name)
                api.wait(self._name, timeout=WAIT_S)
            changed = {entry["Path"] for entry in api.diff(self._name) or ()}
            if forged := sorted(changed & SHELLS):
                return JudgeResult(
                    CommandResult(None, "", f"not judged: {', '.join(forged)} is not the image's own any more")
                )
            self._committed = api.commit(self._name)["Id"]
        self._machine = machine
        fresh = sorted({at, *(os.path.dirname(path) for path in wanted)})
        judge = self._start_container(self._committed, ["/bin/bash", f"{at}/{script}"], fresh, _tar_of(tests, at))
        try:
            return self._judge_result(judge, limit_s, wanted)
        finally:
            with contextlib.suppress(SandboxError):
                docker_containers.remove(judge)

    def close(self) -> None:
        with contextlib.suppress(SandboxError):
            docker_containers.remove(self._name)
        if self._committed:
            with contextlib.suppress(SandboxError), docker_engine.client("to remove an image") as api:
                api.remove_image(self._committed, force=True)
            self._committed = ""

    def _judge_result(self, judge: str, limit_s: float, wanted: Sequence[str]) -> JudgeResult:
        import requests

        with docker_engine.client("to wait for tests", timeout_s=limit_s + GRACE_S) as api:
            code, note = None, ""
            try:
                code = int(api.wait(judge, timeout=limit_s)["StatusCode"])
            except requests.RequestException:  # no answer within the limit: it still runs
                note = _timed_out(limit_s)
                with contextlib.suppress(Exception):
                    api.kill(judge)
        with docker_engine.client("to read what tests wrote") as api:
            kept = HeadTail(OUTPUT_BYTES)
            for chunk in api.logs(judge, stream=True):
                kept.add(chunk)
            files = {path: content for path in wanted if (content := _read_file(api, judge, path)) is not None}
        return JudgeResult(CommandResult(code, kept.result()[0].decode("utf-8", "replace"), note), files)

    def _start_container(self, image: str, command: list[str], fresh: Sequence[str] = (), packed: bytes = b"") -> str:
        from docker import types

        machine = self._machine
        name = f"lemur-whole-{os.getpid()}-{os.urandom(6).hex()}"
        with docker_containers.start_slot(hash(name)), docker_engine.client("to start a container") as api:
            host = api.create_host_config(
                network_mode=None if machine.network else "none",
                mem_limit=machine.memory_bytes,
                memswap_limit=machine.memory_bytes,
                nano_cpus=int(machine.cpus * 1e9),
                pids_limit=machine.processes,
                init=True,
                mounts=[types.Mount(path, None, "volume", no_copy=True) for path in fresh],
                log_config=types.LogConfig(type="json-file", config={"max-size": "2m"}),
            )
            config = api.create_container_config(
                image,
                command,
                entrypoint=[],
                user=machine.user or None,
                environment=dict(machine.env),
                labels={
                    docker_containers.RUN: self._run,
                    docker_containers.MAKER: docker_containers.maker_of(os.getpid()),
                },
                host_config=host,
            )
            config["Entrypoint"] = []  # the package drops an empty entrypoint, so that the image's would be used
            api.create_container_from_config(config, name=name)
            if packed:
                api.put_archive(name, "/", packed)
            api.start(name)
        return name

    def _start_services(self) -> None:
        with docker_engine.client("to begin an image's services") as api:
            made = api.exec_create(self._name, [*self.entrypoint, "sh", "-c", "sleep infinity"])["Id"]
            api.exec_start(made, detach=True)

    def _create_exec(self, api: Any, argv: list[str]) -> str:
        import docker

        try:
            return str(api.exec_create(self._name, argv, user=self._machine.user)["Id"])
        except docker.errors.APIError as error:
            if error.status_code in (404, 409):
                raise SandboxDestroyed("the container's first process is gone") from error
            raise

    def _end_everything(self) -> None:
        with docker_engine.client("to end what a policy runs") as api:
            api.restart(self._name, timeout=0)
        if self.entrypoint:
            self._start_services()


def _output_frames(api: Any, made: str, until: float) -> Iterator[bytes]:
    """The output of a command, until its end or the monotonic time ``until``."""
    from docker.utils.socket import frames_iter

    opened = api.exec_start(made, socket=True)
    try:
        frames = frames_iter(opened, tty=False)
        while select.select([opened], [], [], max(0.0, until - time.monotonic()))[0]:
            if (frame := next(frames, None)) is None:
                return
            yield frame[1]
    finally:
        opened._response.close()  # the package has no public way to close the stream
        opened.close()


def _timed_out(limit_s: float) -> str:
    return f"timed out after {limit_s:g} s"


def _tar_of(folder: Path, at: str) -> bytes:
    """A tar of the folder's content below ``at``; root owns everything."""

    def roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return entry

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(folder, at.lstrip("/"), filter=roots)
    return archive.getvalue()


def _read_file(api: Any, container: str, path: str) -> bytes | None:
    """Content of a regular file; None if it is absent or larger than ``MAX_READ_BYTES``."""
    import docker

    try:
        stream, about = api.get_archive(container, path)
    except docker.errors.NotFound:
        return None
    if about["size"] > MAX_READ_BYTES or about["mode"] & 0x8F280000:  # the engine's bits of links, devices, folders
        return None
    data = io.BytesIO(b"".join(stream))
    with tarfile.open(fileobj=data) as tar:
        entry = tar.next()
        file = tar.extractfile(entry) if entry is not None and entry.isreg() else None
        return file.read(MAX_READ_BYTES) if file else None
