"""One host: network, process, mount, name and IPC namespaces, and a root of its own that starts as good as empty.

What the machine has and a host may see too is its image: the system's own folders, read-only, and those of ``image``.
Its network is plugged in by who makes it. Knows nothing of Ray.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT_SCRIPT = Path(__file__).with_name("host_root.sh")
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""Before a command that must not outlive the thread which starts it, however that ends."""
NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--net")
SYSTEM_PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class HostsUnavailable(Exception):
    """This machine makes no hosts; the message says why."""


@dataclass
class Host:
    """``folder``: on the machine. ``names``: the file of all hosts' names. ``image``: folder of the machine -> where it
    is on the host."""

    name: str
    address: str
    folder: Path
    names: Path
    image: Mapping[str, str]
    shm_bytes: int = 512 << 20
    pid: int = 0
    """Of its first process, as the machine sees it; 0 while it is down."""
    _first: subprocess.Popen[str] | None = None
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """What ``start`` left running."""

    @property
    def root(self) -> Path:
        """Its / as the machine sees it. What lies there survives ``kill``, as a disk does."""
        return self.folder / "root"

    @property
    def home(self) -> str:
        """Inside; another path on every host."""
        return f"/home/{self.name}"

    def boot(self) -> None:
        """Raises HostsUnavailable."""
        Path(f"{self.root}{self.home}").mkdir(parents=True, exist_ok=True)
        given = {"NAME": self.name, "ROOT": str(self.root), "NAMES": str(self.names), "SHM_BYTES": str(self.shm_bytes)}
        pairs = [part for pair in self.image.items() for part in pair]
        command = [*DIES_WITH_US, "unshare", *NAMESPACES, "--fork", "--kill-child", "bash", str(ROOT_SCRIPT), *pairs]
        with (self.folder / "boot.log").open("ab") as log:
            self._first = subprocess.Popen(
                command, env={"PATH": SYSTEM_PATH, **given}, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._first.stdout
        with self._first.stdout as said:
            word, _, pid = said.readline().partition(" ")
        if word != "up":
            self._first.wait()
            raise HostsUnavailable(f"host {self.name}: {(self.folder / 'boot.log').read_text().strip()[-500:]}")
        self.pid = int(pid)

    def command(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
        """A command of the machine that runs ``argv`` on the host, in its home, with nothing of our environment."""
        assert self.pid, f"host {self.name} is down"
        there = {"HOME": self.home, "PATH": SYSTEM_PATH, "LANG": "C.UTF-8", **(env or {})}
        enter = ["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "-n", "env", "-i"]
        return [*enter, *(f"{k}={v}" for k, v in there.items()), "sh", "-c", 'cd "$HOME"; exec "$@"', "on", *argv]

    def run(self, argv: Sequence[str], env: Mapping[str, str] | None = None, **options: Any) -> str:
        """What a command on the host prints. Raises CalledProcessError."""
        asked = {"check": True, "text": True, "stdout": subprocess.PIPE, "timeout": 60, **options}
        return str(subprocess.run(self.command(argv, env), **asked).stdout)

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None, log: str = "out.log") -> Path:
        """Leave a command running on the host; where its output goes."""
        path = self.folder / log
        with path.open("ab") as file:
            self.started.append(subprocess.Popen(self.command(argv, env), stdout=file, stderr=file))
        return path

    def kill(self) -> None:
        """End everything on it at once. Its sockets say good-bye where its link still holds: cut that first."""
        if self._first is None:
            return
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._first.wait()
        for process in self.started:
            process.wait()
        self._first, self.pid = None, 0
        self.started.clear()

    def wipe(self) -> None:
        """A new machine of the same name: whatever was written on the old one is gone. Only while it is down."""
        assert not self.pid, f"host {self.name} runs"
        shutil.rmtree(self.root)

    def processes(self) -> list[int]:
        """Everything that runs on it, as the machine sees it."""
        mine, found = os.readlink(f"/proc/{self.pid}/ns/pid"), []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and os.readlink(f"/proc/{entry}/ns/pid") == mine:
                    found.append(int(entry))
        return found
