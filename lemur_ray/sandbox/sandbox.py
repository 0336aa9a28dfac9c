"""The sandbox interface: where code of a model runs, what it may use up, and whose fault it was when it ended.

| call | what it promises | what it raises |
|---|---|---|
| ``open_sandbox`` | a private file tree, processes of its own, no network unless asked | SandboxUnavailable |
| ``exec`` | one command; a limit that struck is a field of the result, no exception | SandboxDestroyed |
| ``read``, ``write`` | regular files beneath the sandbox's own root, bounded | SandboxFileError |
| ``listing`` | every entry of everything writable, seen with the first process's own eyes | SandboxFileError |
| ``snapshot`` | a hash over names, modes, contents and links of everything writable | SandboxDestroyed |
| ``reset`` | all namespaces destroyed and made anew, the tree back, proven by hash | SandboxQuarantined |
| ``close`` | idempotent; afterwards nothing of it runs or occupies memory | nothing |

Blame: ``policy`` is scored, ``infra`` and ``harness`` are retried (same words as ``agents.trajectory.Blame``). A policy
that destroys its sandbox gets ``alive=False, blame="policy"``: no retry, and never a success.

Knows nothing of any backend's inside, of benchmarks or of graders.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Blame = Literal["policy", "infra", "harness"]
READ_BYTES = 100 * 2**20
"""What ``read`` returns at most unless told otherwise."""


class SandboxError(RuntimeError):
    """Something of a sandbox did not work. ``blame`` says whose doing it was."""

    blame: Blame = "infra"


class SandboxUnavailable(SandboxError):
    """The backend cannot make a sandbox on this machine: the message says what to install or allow."""


class SandboxDestroyed(SandboxError):
    """The sandbox is gone. ``blame`` is ``policy`` where its own code ended it, ``infra`` where the machine did."""

    def __init__(self, message: str, blame: Blame = "policy") -> None:
        super().__init__(message)
        self.blame = blame


class SandboxQuarantined(SandboxError):
    """A reset did not bring back the tree it should have: this sandbox takes no more work."""


class SandboxFileError(SandboxError):
    """A file could not be read or written: absent, not regular, too large, no space. It is the policy's own tree."""

    blame: Blame = "policy"


@dataclass(frozen=True)
class Limits:
    """What one command may use; ``memory_bytes``, ``processes``, ``disk_bytes`` and ``inodes`` are the sandbox's sums.

    The last three of those are fixed when a sandbox is opened; ``exec`` may be given other times, outputs and
    ``processes``.
    """

    time_s: float = 10.0
    """Wall time of a step on the harness's monotonic clock; SIGKILL at the limit."""
    patience_s: float = 0.0
    """How much longer a step may last that the machine has given no processor: only then is the end its fault."""
    cpu_s: float | None = None
    """Processor time that the machine owes a step: with less, one that ran out of time while it waited for a processor
    was starved. None: a quarter of ``time_s``."""
    output_bytes: int = 65536
    """Kept of stdout, and as much of stderr: half from the head, half from the tail of each, the rest counted."""
    kill_at_bytes: int = 10 * 2**20
    """Produced output, both streams together, at which the command is killed."""
    memory_bytes: int = 2**30
    processes: int = 64
    disk_bytes: int = 64 * 2**20
    inodes: int = 20_000


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox is made of. Everything is copied or mounted read-only: nothing on the host is ever written."""

    tree: Path | None = None
    """A host folder whose content is copied to ``/work``."""
    trees: Mapping[str, Path] = field(default_factory=dict)
    """Absolute path inside -> host folder (or file) whose content is copied there, writable."""
    mounts: Mapping[str, Path] = field(default_factory=dict)
    """Absolute path inside -> host folder, read-only and not copied (packages, large assets)."""
    rootfs: Path | None = None
    """A root file system whose ``usr``, ``etc`` and ``var`` stand read-only inside; None: ``/usr`` of this machine, or
    of the backend's image."""
    limits: Limits = field(default_factory=Limits)
    network: bool = False
    """True shares the host's network, loopback included."""
    env: Mapping[str, str] = field(default_factory=dict)
    as_root: bool = False
    """Inside, user 0 owns files and processes (no capability comes with it); default: user 1000."""
    writable_root: bool = False
    """``/`` itself and ``/usr`` (not what lies in it) belong to the tree and may be written; default: only ``/work``,
    ``/tmp``, home and ``trees``."""
    masked: tuple[str, ...] = ()
    """Absolute paths inside of programs that are to be absent: where one leads, an empty file stands."""
    etc: tuple[str, ...] = ()
    """Names in ``/etc``, or patterns of them, that are shown besides the usual ones: settings of a tool chain. Not with
    ``rootfs``."""
    image: str = "sandbox"
    """Which of the lists of packages in ``cluster/images`` a backend with images makes its userland of."""
    tracing: bool = False
    """Programs may trace one another (gdb). Only where nothing that one could forge is read out of it."""
    run: str = ""
    """Label of the run, by which orphans are found."""


@dataclass(frozen=True)
class ExecResult:
    """How a command ended. ``exit_code`` and ``signal``: one of them is None, both if the sandbox is gone."""

    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool
    """Output beyond ``output_bytes`` was left out; a line in place of it says how much."""
    bytes_dropped: int
    timed_out: bool
    wall_s: float
    cpu_s: float
    alive: bool
    """Whether the sandbox still takes commands."""
    blame: Blame | None
    """None: it ended by itself. ``policy``: a limit, or its own destruction. ``infra``: the machine starved it."""
    notes: tuple[str, ...] = ()
    """What the sandbox did, a sentence each: "timed out after 10 s", "memory limit of ...". For people alone."""
    session_ended: bool = False
    """Whether the session that took the step takes no more."""
    waited_s: float = 0.0
    """Part of ``wall_s`` in which the step was ready to run but had no processor."""

    @property
    def note(self) -> str:
        """``notes`` and the end of the session as the text of an observation."""
        return "; ".join([*self.notes, *(["session ended"] if self.session_ended else [])])

    @property
    def out(self) -> str:
        """stdout as text; what is not UTF-8 becomes U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        """stderr as text; what is not UTF-8 becomes U+FFFD."""
        return self.stderr.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True)
class Capabilities:
    """What a backend guarantees on this machine. A guarantee that is absent has its reason in ``reasons``."""

    network_none: bool = True
    pids_limit: bool = True
    mem_total: bool = True
    """The sum over all processes is bounded, not each process alone."""
    disk_quota: bool = True
    inode_quota: bool = True
    seccomp: bool = True
    own_uid: bool = True
    """Each sandbox is a user of its own to the host."""
    reasons: Mapping[str, str] = field(default_factory=dict)


class Session(Protocol):
    """A process that lives from step to step inside a sandbox and takes one message at a time."""

    @property
    def alive(self) -> bool:
        """Whether it takes another message."""

    def step(self, message: bytes, limits: Limits | None = None) -> ExecResult:
        """Hand over ``message`` and wait until it is done. ``exit_code`` is what the process reported for it."""

    def close(self) -> None:
        """End the process and its children."""


class Sandbox(Protocol):
    """One open sandbox. Calls are serialised; any thread may make them."""

    capabilities: Capabilities
    spec: SandboxSpec

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
        """Run a command to its end. What it left running is killed unless ``keep_background``."""

    def session(self, argv: Sequence[str], *, cwd: str = "/work", env: Mapping[str, str] | None = None) -> Session:
        """Start a process that lives until closed, reset or killed; it reads messages at descriptor 9."""

    def read(self, path: str, max_bytes: int = READ_BYTES) -> bytes:
        """Content of a regular file; longer than ``max_bytes`` is an error."""

    def write(self, path: str, data: bytes) -> None:
        """Put a file there, its folders too; what was there before is replaced, links are not followed."""

    def listing(self, left_out: Collection[str] = ()) -> list[tuple[str, str, int, str]]:
        """Everything writable but the top-level names in ``left_out``: absolute path, kind (d, f, l, ? for others),
        permission bits, and SHA-256 of a file or target of a link. No program inside is asked, none can forge it.

        SandboxFileError where a path is too long to be followed, the listing is larger than 2 MiB, or the files say
        that they hold more than four times what the sandbox can hold (holes take nothing but the time to read them).
        """

    def snapshot(self) -> str:
        """Hash of everything writable."""

    def reset(self) -> None:
        """Destroy all processes, namespaces and files; begin anew with the first tree."""

    def close(self) -> None:
        """End it; idempotent, never raises."""


class Backend(Protocol):
    """A way to make sandboxes."""

    name: str
    capabilities: Capabilities

    def open(self, spec: SandboxSpec) -> Sandbox:
        """A new sandbox; SandboxUnavailable where this machine cannot."""


BACKENDS: dict[str, tuple[str, str]] = {
    "bwrap": ("lemur_ray.sandbox.backends.bwrap", "BwrapBackend"),
    "docker": ("lemur_ray.sandbox.backends.docker_backend", "DockerBackend"),
}


def backend_named(name: str) -> Backend:
    """The backend of that name, imported where it is asked for."""
    if name not in BACKENDS:
        raise ValueError(f"unknown sandbox backend {name!r}: expected one of {', '.join(sorted(BACKENDS))}")
    module, maker = BACKENDS[name]
    make: Callable[[], Backend] = getattr(importlib.import_module(module), maker)
    return make()


def open_sandbox(spec: SandboxSpec | None = None, backend: str = "bwrap") -> Sandbox:
    """Open a sandbox of the named backend."""
    return backend_named(backend).open(spec or SandboxSpec())
