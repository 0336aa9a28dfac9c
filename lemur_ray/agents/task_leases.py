"""Leases: exclusive locks, persistent notes and commands that environments of several processes share.

A lease is a name (of a site, a port) that one holder has at a time. On one host leases are files with kernel locks
(``FileLeases``), released however the holder ends. For several hosts, one keeps them all (``WithLeases``)."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lemur_ray.agents.external_calls import ExternalCallError
from lemur_ray.agents.messages import Policy
from lemur_ray.host.file_lock import take
from lemur_ray.host.home import lemur_home
from lemur_ray.host.renamed_names import renamed_names

COMMAND_NOT_FOUND, COMMAND_TIMED_OUT = 127, 124
"""Exit codes, as in shells, of a command that could not be started and of one that timed out"""


class LeasesLost(ExternalCallError):
    """Raised if the host that keeps the leases does not answer: an infrastructure fault, so the episode is repeated."""


class HeldLease(Protocol):
    """An exclusive lock on a name, held until ``give_back`` or the end of its process."""

    @property
    def name(self) -> str: ...

    def is_held(self) -> bool:
        """Whether the lease is still valid. Raises LeasesLost if its keeper does not answer."""

    def give_back(self) -> None:
        """Release the lease. Safe to call twice. Never raises."""


class Leases(Protocol):
    """Exclusive locks and notes (stored texts) that several processes share, and commands on the host that keeps them.
    Thread-safe. Names are relative paths."""

    def take(self, names: Sequence[str]) -> HeldLease | None:
        """Lock the first free one of ``names``, without waiting; None if all are taken. Raises LeasesLost if the host
        that keeps the leases does not answer."""

    def note(self, name: str, text: str | None = None) -> str | None:
        """Return the text stored under ``name``, or None; then store ``text`` there unless None. Raises LeasesLost if
        the host that keeps the leases does not answer."""

    def run(self, command: Sequence[str], limit_s: float) -> tuple[int, str]:
        """Run a command on the leases' host, for at most ``limit_s`` seconds. Returns (exit status, end of its output);
        127 if it is not found, 124 after the limit. Raises LeasesLost if that host does not answer."""


class FileLeases:
    """Leases (kernel locks of files ``NAME.lock``) and notes (files ``NAME``) in ``folder``, shared on this host."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, names: Sequence[str]) -> "FileLease | None":
        for name in names:
            descriptor = os.open(self._file(f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if take(descriptor):
                return FileLease(name, descriptor)
            os.close(descriptor)
        return None

    def note(self, name: str, text: str | None = None) -> str | None:
        file = self._file(name)
        before = file.read_text(encoding="utf-8") if file.exists() else None
        if text is not None:
            part = file.with_name(f"{file.name}.part")
            part.write_text(text, encoding="utf-8")
            part.replace(file)
        return before

    def run(self, command: Sequence[str], limit_s: float) -> tuple[int, str]:
        try:
            done = subprocess.run(list(command), capture_output=True, text=True, errors="replace", timeout=limit_s)
        except OSError as error:
            return COMMAND_NOT_FOUND, str(error)
        except subprocess.TimeoutExpired:
            return COMMAND_TIMED_OUT, f"it did not end within {limit_s:g} s"
        return done.returncode, (done.stderr or done.stdout).strip()[-500:]

    def _file(self, name: str) -> Path:
        file = self._folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        return file


class FileLease:
    """A lease of ``FileLeases``: an open, locked file."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptors = [descriptor]

    def is_held(self) -> bool:
        return bool(self._descriptors)

    def give_back(self) -> None:
        try:
            os.close(self._descriptors.pop())
        except IndexError:  # given back before, perhaps by another thread
            return


_elsewhere: list[Leases] = []


def shared_leases() -> Leases:
    """The leases of this process: those that ``WithLeases`` set, else files in this host's home folder (LEMUR_HOME)."""
    return _elsewhere[0] if _elsewhere else FileLeases(lemur_home())


class WithLeases:
    """Policy factory for other processes: makes ``shared_leases`` return ``leases``, then calls ``make_policy``."""

    def __init__(self, make_policy: Callable[[], Policy], leases: Leases) -> None:
        self.make_policy, self.leases = make_policy, leases

    def __call__(self) -> Policy:
        _elsewhere[:] = [self.leases]
        return self.make_policy()


if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Held="HeldLease", HeldFile="FileLease", Leasing="WithLeases")
