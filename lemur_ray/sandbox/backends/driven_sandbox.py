"""The sandbox implementation of both backends: drives the first process in its housing (bubblewrap, a container).

Translates calls of the interface into requests to the first process, decides who is to blame for an end, and verifies
resets. Knows nothing of how the housing is made."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from lemur_ray.sandbox import exec_slots
from lemur_ray.sandbox.backends.connection import Connection, ConnectionLost, ConnectionSilent
from lemur_ray.sandbox.backends.keeper_client import PATH, START_S, Housing
from lemur_ray.sandbox.backends.step_result import step_result
from lemur_ray.sandbox.inside import tree, wire
from lemur_ray.sandbox.output import HeadTail
from lemur_ray.sandbox.sandbox import (
    READ_BYTES,
    Blame,
    Capabilities,
    ExecResult,
    Limits,
    SandboxDestroyed,
    SandboxError,
    SandboxFileError,
    SandboxQuarantined,
    SandboxSpec,
)
from lemur_ray.sandbox.untrusted_output import Bounds, UntrustedData, has_shape, untrusted_json

QUIET = {"PAGER": "cat", "GIT_PAGER": "cat", "DEBIAN_FRONTEND": "noninteractive", "GIT_TERMINAL_PROMPT": "0"}
WORK = "/work"
"""Folder of relative paths."""
SLACK_S = 15.0
"""Seconds beyond a step's limit after which a first process without an answer counts as lost."""
CLOSE_S = 10.0
"""Seconds that ``close`` waits for a call in another thread to end."""
FILE_S = 60.0
LISTING = Bounds(2 * 2**20, nodes=120_000, depth=3)
CONTENT_TIMES = 4
"""Nominal size of all files in a listed tree, as a multiple of the disk limit (holes count)."""


class DrivenSandbox:
    """The ``sandbox.Sandbox`` of both backends, controlled over a socket to its first process."""

    def __init__(self, housing: Housing, spec: SandboxSpec, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.spec = spec
        self._housing = housing
        self._lock = threading.RLock()
        self._end: SandboxError | None = None
        self._closed = False
        self.generation = 0
        try:
            self._connection, self.first_hash = self._begin()
        except BaseException:
            housing.destroy()
            raise

    def _begin(self) -> tuple[Connection, str]:
        connection = None
        try:
            connection = self._housing.begin()
            message = connection.answer(time.monotonic() + START_S)
        except ConnectionLost as error:
            if connection is not None:
                connection.close()
            raise SandboxDestroyed(f"the sandbox did not start: {error}", "infra") from error
        if "hash" not in message:
            connection.close()
            raise SandboxDestroyed(f"the sandbox did not start: {message.get('error')}", "infra")
        self.generation += 1
        return connection, message["hash"]

    # Commands

    def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "/work",
        stdin: bytes = b"",
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        keep_background: bool = False,
    ) -> ExecResult:
        if not argv or any("\0" in part for part in argv):
            raise ValueError(f"argv {list(argv)!r}: expected at least one word and no NUL in any")
        limits = limits or self.spec.limits
        order = {"op": "exec", **self._order(argv, cwd, env, limits), "keep_background": keep_background}
        return self._run(order, stdin, limits)

    def session(
        self, argv: Sequence[str], *, cwd: str = "/work", env: Mapping[str, str] | None = None
    ) -> "DrivenSession":
        order = {"op": "session", **self._order(argv, cwd, env, self.spec.limits)}
        return DrivenSession(self, self._ask(order)["session"], self.generation)

    def _order(self, argv: Sequence[str], cwd: str, env: Mapping[str, str] | None, limits: Limits) -> dict[str, Any]:
        home = "/root" if self.spec.as_root else "/home/user"
        user = "root" if self.spec.as_root else "user"
        whole = {"PATH": PATH, "HOME": home, "USER": user, "LOGNAME": user, "LANG": "C.UTF-8", "TERM": "dumb", **QUIET}
        whole["PWD"] = cwd  # so that programs see the name of a working folder that is a link
        whole |= {**self._housing.env, **self.spec.env, **(env or {})}
        return {"argv": list(argv), "cwd": cwd, "env": whole, "processes": limits.processes, **clock(limits)}

    def _run(self, order: dict[str, Any], data: bytes, limits: Limits) -> ExecResult:
        kept = {wire.STDOUT: HeadTail(limits.output_bytes), wire.STDERR: HeadTail(limits.output_bytes)}
        bound = limits.kill_at_bytes + 2**23

        def take(kind: int, payload: bytes) -> None:
            kept[kind].add(payload)
            if sum(stream.produced for stream in kept.values()) > bound:
                raise ConnectionLost("output after the limit that should have ended it")

        started = time.monotonic()
        with exec_slots.hold_slot(limits.time_s), self._lock:
            self._require()
            killed = self._housing.memory_kills()
            try:
                wait_s = limits.time_s + limits.patience_s + SLACK_S
                answer = self._connection.ask(order, data, timeout_s=wait_s, output=take)
                lost = ""
            except ConnectionLost as error:
                answer, lost = {"wall_s": time.monotonic() - started}, str(error)
                self._lost(error)
            if more := self._housing.memory_kills() - killed:
                answer["memory_kills"] = answer.get("memory_kills", 0) + more
        return step_result(answer, kept, limits, lost, self._end)

    # Files and state

    def read(self, path: str, max_bytes: int = READ_BYTES) -> bytes:
        return self._ask_data({"op": "read", "path": _absolute(path), "max_bytes": max_bytes})

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._ask({"op": "write", "path": _absolute(path), "mode": mode}, data, error=SandboxFileError)

    def snapshot(self) -> str:
        order = {"op": "snapshot", "content_bytes": CONTENT_TIMES * self.spec.limits.disk_bytes}
        return str(self._ask(order, error=SandboxFileError)["hash"])

    def listing(self, left_out: Collection[str] = ()) -> list[tree.TreeEntry]:
        order = {"op": "list", "left_out": sorted(left_out), "max_bytes": LISTING.size_bytes}
        order["content_bytes"] = CONTENT_TIMES * self.spec.limits.disk_bytes
        entries = untrusted_json(self._ask_data(order), LISTING)
        if not has_shape(entries, [(str, str, int, str)]):
            raise UntrustedData("a listing of other things than path, kind, mode and content")
        return [(path, kind, mode, content) for path, kind, mode, content in entries]

    def reset(self) -> None:
        with self._lock:
            if isinstance(self._end, SandboxQuarantined):
                raise self._end
            if isinstance(self._end, SandboxDestroyed) and self._end.blame != "policy":
                raise self._end
            self._connection.close()
            try:
                self._connection, now = self._begin()
            except SandboxError as error:
                self._require_open()
                self._end = error
                raise
            self._require_open()
            if now != self.first_hash:
                self._end = SandboxQuarantined(
                    f"after a reset the tree hashes to {now}, at first it was {self.first_hash}: use another sandbox"
                )
                raise self._end
            self._end = None

    def close(self) -> None:
        """Destroy the sandbox. Safe from any thread, also while another one waits in a call."""
        self._closed = True
        self._end = self._end or SandboxDestroyed("the sandbox was closed", "harness")
        self._connection.hang_up()
        self._housing.hang_up()
        if self._lock.acquire(timeout=CLOSE_S):  # a waiting call ends at the hang-up
            self._connection.close()
            self._lock.release()
        self._housing.destroy()

    def abandon(self) -> None:
        """Close a forked child's descriptors; the parent's sandbox continues."""
        self._end = SandboxDestroyed("this sandbox is another process's", "harness")
        self._connection.abandon()
        self._housing.abandon()

    def __enter__(self) -> "DrivenSandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self, order: dict[str, Any], data: bytes | None = None, error: type[SandboxError] = SandboxError
    ) -> dict[str, Any]:
        with self._lock:
            self._require()
            answer: dict[str, Any] = self._guarded(lambda: self._connection.ask(order, data, timeout_s=FILE_S))
            if "error" in answer:
                raise error(answer["error"])
            return answer

    def _ask_data(self, order: dict[str, Any]) -> bytes:
        """Send an order and receive the data that it asks for, at most its ``max_bytes``."""
        with self._lock:
            self._ask(order, error=SandboxFileError)
            data: bytes = self._guarded(lambda: self._connection.data(time.monotonic() + FILE_S, order["max_bytes"]))
            self._guarded(lambda: self._connection.answer(time.monotonic() + FILE_S))
            return data

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except ConnectionLost as error:
            self._lost(error)
            assert self._end
            raise self._end from error

    def _require(self) -> None:
        if self._end:
            raise self._end

    def _require_open(self) -> None:
        """Raise if ``close`` was called during a reset; the new generation then ends with the housing."""
        if self._closed:
            self._connection.close()
            self._end = SandboxDestroyed("the sandbox was closed", "harness")
            raise self._end

    def _lost(self, error: ConnectionLost) -> None:
        if self._end is None:
            blame: Blame = "infra" if isinstance(error, ConnectionSilent) else self._housing.blame_for_end()
            whose = "by its own processes" if blame == "policy" else "by the machine"
            self._end = SandboxDestroyed(f"the sandbox was destroyed {whose}: {error}", blame)


class DrivenSession:
    """The ``sandbox.Session`` of a ``DrivenSandbox``; it ends with a reset of its sandbox."""

    def __init__(self, sandbox: DrivenSandbox, number: int, generation: int) -> None:
        self._sandbox, self._number, self._generation = sandbox, number, generation
        self._ended = False

    @property
    def alive(self) -> bool:
        return not self._ended and self._sandbox.generation == self._generation

    def step(self, message: bytes, limits: Limits | None = None) -> ExecResult:
        if not self.alive:
            raise SandboxError("this session has ended: start another one")
        limits = limits or self._sandbox.spec.limits
        order = {"op": "step", "session": self._number, **clock(limits)}
        result = self._sandbox._run(order, message, limits)
        self._ended = not result.alive or result.session_ended
        return result

    def close(self) -> None:
        if self.alive:
            self._ended = True
            with contextlib.suppress(SandboxError):
                self._sandbox._ask({"op": "end", "session": self._number})


def clock(limits: Limits) -> dict[str, Any]:
    times = {"time_s": limits.time_s, "patience_s": limits.patience_s, "cpu_s": limits.cpu_s}
    return {**times, "kill_at": limits.kill_at_bytes}


def _absolute(path: str) -> str:
    if "\0" in path:
        raise SandboxFileError(f"{path!r}: a path has no NUL")
    return path if path.startswith("/") else f"{WORK}/{path}"
