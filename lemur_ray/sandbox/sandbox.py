"""The sandbox interface: runs code of a policy within limits, and reports who is to blame when it ends.

| call | guarantee | raises |
|---|---|---|
| ``open_sandbox`` | a private file tree and process namespace, no network unless requested | SandboxUnavailable |
| ``exec`` | one command; an exceeded limit is a field of the result, no exception | SandboxDestroyed |
| ``read``, ``write`` | regular files below the sandbox's root, of limited size | SandboxFileError |
| ``listing`` | all writable entries, listed by the trusted first process | SandboxFileError |
| ``snapshot`` | a hash over names, modes, contents and links of all writable entries | SandboxDestroyed |
| ``reset`` | namespaces and tree recreated, verified by the hash | SandboxQuarantined |
| ``close`` | idempotent; afterwards the sandbox has no processes and uses no memory | nothing |

Blame: ``policy`` is scored, ``infra`` and ``harness`` are retried (values as in ``agents.trajectory.Blame``). A policy
that destroys its sandbox gets ``alive=False, blame="policy"``: no retry, and never a success.

Knows nothing of the backends' implementation, of benchmarks or of graders."""

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Blame = Literal["policy", "infra", "harness"]
READ_BYTES = 100 * 2**20
"""Default limit of ``read`` in bytes."""


class SandboxError(RuntimeError):
    """Raised if an operation of a sandbox failed. ``blame``: who caused it, by default "infra", the machine."""

    blame: Blame = "infra"


class SandboxUnavailable(SandboxError):
    """Raised if a backend cannot create a sandbox on this machine; the message states what to install or allow."""


class SandboxDestroyed(SandboxError):
    """Raised if the sandbox no longer exists. ``blame``: policy if its code ended it, infra if the machine did."""

    def __init__(self, message: str, blame: Blame = "policy") -> None:
        super().__init__(message)
        self.blame = blame


class SandboxQuarantined(SandboxError):
    """Raised if a reset did not restore the sandbox's first files: use another one. Blamed on the machine."""


class SandboxFileError(SandboxError):
    """Raised if a file could not be read or written: absent, not regular, too large, no space. The policy is to blame,
    because the tree is its own."""

    blame: Blame = "policy"


@dataclass(frozen=True)
class Limits:
    """Limits of one command. ``memory_bytes``, ``processes``, ``disk_bytes`` and ``inodes`` (number of files and
    folders) are sums over the sandbox. Memory, disk and inodes are fixed when a sandbox is opened; ``exec`` accepts
    other times, outputs and ``processes``."""

    time_s: float = 10.0
    """Wall time of a step in seconds on the harness's monotonic clock; SIGKILL at the limit."""
    patience_s: float = 0.0
    """Additional seconds for a step that the machine starved of processor time; after them the machine is to blame."""
    cpu_s: float | None = None
    """Processor seconds that the machine owes a step: one that timed out with less, while waiting for a processor, was
    starved. None: a quarter of ``time_s``."""
    output_bytes: int = 65536
    """Bytes kept of stdout, and of stderr: half from the head, half from the tail; dropped bytes are counted."""
    kill_at_bytes: int = 10 * 2**20
    """Bytes of output, both streams together, at which the command is killed."""
    memory_bytes: int = 2**30
    processes: int = 64
    disk_bytes: int = 64 * 2**20
    inodes: int = 20_000


@dataclass(frozen=True)
class SandboxSpec:
    """Contents and limits of a sandbox. Files are copied or mounted read-only; nothing on the host is written."""

    tree: Path | None = None
    """Host folder whose content is copied to ``/work``."""
    trees: Mapping[str, Path] = field(default_factory=dict)
    """Absolute path inside -> host folder (or file) whose content is copied there, writable."""
    mounts: Mapping[str, Path] = field(default_factory=dict)
    """Absolute path inside -> host folder, read-only and not copied (packages, large assets)."""
    rootfs: Path | None = None
    """Root file system whose ``usr``, ``etc`` and ``var`` are mounted read-only; None: ``/usr`` of this machine, or of
    the backend's image."""
    limits: Limits = field(default_factory=Limits)
    network: bool = False
    """Share the host's network, loopback included."""
    env: Mapping[str, str] = field(default_factory=dict)
    as_root: bool = False
    """Run as user 0 inside, without capabilities; default: user 1000."""
    writable_root: bool = False
    """Make the folders ``/`` and ``/usr`` writable themselves; default: ``/work``, ``/tmp``, home and ``trees``."""
    masked: tuple[str, ...] = ()
    """Absolute paths of programs to hide; each is covered by an empty file."""
    etc: tuple[str, ...] = ()
    """Additional names or patterns in the host's ``/etc`` to mount (settings of a tool chain). Not with ``rootfs``."""
    image: str = "sandbox"
    """Name of the list of packages in ``cluster/images`` for backends with images."""
    tracing: bool = False
    """Allow programs to trace one another (gdb). Only for sandboxes from which the harness reads nothing that a tracer
    could forge."""
    run: str = ""
    """Label of the run, which identifies orphans."""


@dataclass(frozen=True)
class ExecResult:
    """Result of a command. ``exit_code`` is its exit status, or ``signal`` the number of the signal that ended it; the
    other one is None, and both are if the sandbox was destroyed. ``wall_s``, ``cpu_s``: seconds."""

    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool
    """Whether output beyond ``output_bytes`` was dropped; a line in its place states how many bytes."""
    bytes_dropped: int
    timed_out: bool
    wall_s: float
    cpu_s: float
    alive: bool
    """Whether the sandbox accepts further commands."""
    blame: Blame | None
    """None: it ended by itself. ``policy``: it exceeded a limit or destroyed the sandbox. ``infra``: it was starved."""
    notes: tuple[str, ...] = ()
    """Actions of the sandbox as sentences for people: "timed out after 10 s", "memory limit of ..."."""
    session_ended: bool = False
    """Whether the session ended with this step."""
    waited_s: float = 0.0
    """Part of ``wall_s`` in which the step was ready to run but had no processor."""

    @property
    def note(self) -> str:
        """``notes`` and whether the session ended, as one text for the policy; maybe empty."""
        return "; ".join([*self.notes, *(["session ended"] if self.session_ended else [])])

    @property
    def out(self) -> str:
        """stdout as text; invalid UTF-8 becomes U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        """stderr as text; invalid UTF-8 becomes U+FFFD."""
        return self.stderr.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True)
class Capabilities:
    """Guarantees of a backend on this machine: no network, and limits of processes, summed memory, disk bytes and
    inodes are enforced, system calls are filtered, uids are separate. ``reasons`` explains each missing one by its
    name."""

    network_none: bool = True
    pids_limit: bool = True
    mem_total: bool = True
    """The memory summed over all processes is limited, not only that of each process."""
    disk_quota: bool = True
    inode_quota: bool = True
    seccomp: bool = True
    own_uid: bool = True
    """Each sandbox has its own uid on the host."""
    reasons: Mapping[str, str] = field(default_factory=dict)


class Session(Protocol):
    """A process inside a sandbox that persists between steps and handles one message at a time."""

    @property
    def alive(self) -> bool:
        """Whether the process accepts another message; False after a reset of the sandbox."""

    def step(self, message: bytes, limits: Limits | None = None) -> ExecResult:
        """Send ``message`` and wait until the process reports that it has handled it, ends, or exceeds a limit, which
        is a field of the result. ``exit_code`` of the result is the reported status. ``limits``: default: the
        sandbox's. Raises SandboxError if the process had ended before this call (``alive`` is False)."""

    def close(self) -> None:
        """End the process and its children; idempotent."""


class Sandbox(Protocol):
    """An open sandbox. Thread-safe; calls run one at a time, in the order of their locks. After it was destroyed or
    closed, all but ``reset`` and ``close`` raise SandboxDestroyed."""

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
        """Run the command ``argv`` in folder ``cwd``, with the input ``stdin``, to its end, with ``env`` added to the
        sandbox's, and within ``limits`` (default: the spec's); an exceeded limit is a field of the result. Background
        processes are killed unless ``keep_background``. Raises SandboxDestroyed if the sandbox had ended before,
        ValueError for an empty ``argv`` or NUL bytes."""

    def session(self, argv: Sequence[str], *, cwd: str = "/work", env: Mapping[str, str] | None = None) -> Session:
        """Start a process that lives until closed, reset or killed. Messages reach it on descriptor 9, each followed by
        a line with a random word; it ends a step by writing that word and a status to descriptor 8. ``argv``, ``cwd``,
        ``env``: as for ``exec``."""

    def read(self, path: str, max_bytes: int = READ_BYTES) -> bytes:
        """Content of the regular file ``path`` (relative paths: below ``/work``). Raises SandboxFileError if it is
        absent, no regular file, or longer than ``max_bytes`` (default 100 MiB)."""

    def write(self, path: str, data: bytes) -> None:
        """Write ``data`` to the file ``path`` (relative paths: below ``/work``) and create its folders. An existing
        file is replaced; links are not followed. Raises SandboxFileError, also if the disk limit is reached."""

    def listing(self, left_out: Collection[str] = ()) -> list[tuple[str, str, int, str]]:
        """All writable entries but the top-level names in ``left_out``: absolute path, kind (d, f, l, ? for others),
        permission bits, and SHA-256 of a file or target of a link. Programs inside cannot influence it. Raises
        SandboxFileError if a path is too long, the listing exceeds 2 MiB, or the nominal size of the files exceeds four
        times the disk limit (holes use no space, but take time to read)."""

    def snapshot(self) -> str:
        """SHA-256 (hex) of names, modes, contents and links of all writable entries; equal hashes mean equal files.
        Raises SandboxDestroyed; SandboxFileError if the files are nominally larger than four times the disk limit."""

    def reset(self) -> None:
        """Kill all processes and restore the sandbox's first files; also revives one that the policy destroyed. Raises
        SandboxQuarantined if the files' hash differs, SandboxDestroyed if the machine had ended it."""

    def close(self) -> None:
        """Destroy the sandbox; idempotent, never raises."""


class Backend(Protocol):
    """A way to isolate programs (bubblewrap, Docker) that opens sandboxes. ``name`` is its name in flags."""

    name: str
    capabilities: Capabilities

    def open(self, spec: SandboxSpec) -> Sandbox:
        """Create a sandbox, which the caller must close. Raises SandboxUnavailable if this machine cannot run one,
        FileNotFoundError or ValueError if a folder to copy is missing or holds a device, pipe or socket, RuntimeError
        if too many sandboxes are open (bwrap)."""


BACKENDS: dict[str, tuple[str, str]] = {
    "bwrap": ("lemur_ray.sandbox.backends.bwrap", "BwrapBackend"),
    "docker": ("lemur_ray.sandbox.backends.docker_backend", "DockerBackend"),
}


def backend_named(name: str) -> Backend:
    """Import and create the backend ``name``: "bwrap" or "docker". Raises ValueError for another name."""
    if name not in BACKENDS:
        raise ValueError(f"unknown sandbox backend {name!r}: expected one of {', '.join(sorted(BACKENDS))}")
    module, maker = BACKENDS[name]
    make: Callable[[], Backend] = getattr(importlib.import_module(module), maker)
    return make()


def open_sandbox(spec: SandboxSpec | None = None, backend: str = "bwrap") -> Sandbox:
    """Open a sandbox of the backend "bwrap" or "docker"; without ``spec`` one with an empty ``/work`` and default
    limits. The caller must close it. Raises ValueError for another backend, and the errors of ``Backend.open``."""
    return backend_named(backend).open(spec or SandboxSpec())
