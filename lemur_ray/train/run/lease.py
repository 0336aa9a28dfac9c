"""One writer for a run folder, also where the kernel of one machine cannot see the other: a lease that is renewed.

A lock of the kernel (``folder.lock``) holds on one machine and on some network file systems, never in a bucket. The
lease is a small file that its holder counts up every few seconds; who finds another's lease watches whether the count
moves. No two machines' clocks are compared. In a bucket it is taken and renewed by compare-and-swap
(``bucket_lease``). Knows nothing of what a run writes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lemur_ray.storage.bucket_lease import (
    HEARTBEAT_S,
    LEASE,
    MISSED_HEARTBEATS,
    BucketLease,
    LeaseConflict,
    TakeoverWait,
    describe_holder,
)
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.storage.heartbeat import run_heartbeat
from lemur_ray.train.run.folder import RunFolderError, read_object, write_json
from lemur_ray.train.run.goodput import clock


@contextlib.contextmanager
def lease(out: str, *, beat_s: float = HEARTBEAT_S) -> Iterator[None]:
    """Hold ``out/.run.lease`` and count it up in the background; given back at a clean end.

    A holder on this machine that is dead is known by the kernel's lock, which the caller holds already, and not waited
    for. One on another machine, or any in a bucket, is watched for ``MISSED_HEARTBEATS`` beats.

    Raises:
        RunFolderError: another process counts the lease up; or has taken it over because this one could not count for a
            while, in which case the main thread is interrupted, as by Ctrl-C, where it is.
    """
    mine = {"id": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid(), "boot": clock()["boot"]}
    held = BucketLease(out, mine) if is_bucket(out) else _OnDisk(out, mine, beat_s)
    try:
        held.take(MISSED_HEARTBEATS * beat_s)
    except LeaseConflict as other:
        raise _held(out, other.holder) from None
    except OSError as error:
        raise RunFolderError(f"{out}: whether another run writes it cannot be told: {error}") from error

    def renew() -> None:
        with contextlib.suppress(OSError):  # a full disk or a lost bucket for a moment: the next one tries again
            held.renew()

    taken: list[Exception] = []
    try:
        with run_heartbeat(renew, beat_s) as taken:
            yield
    except LeaseConflict as other:
        raise RunFolderError(
            f"{out} could not be reached for a while and was taken over by another run "
            f"({describe_holder(other.holder)}): this one stops, and nothing that it had committed is lost"
        ) from None
    finally:
        with contextlib.suppress(OSError, LeaseConflict):
            if not taken:
                held.give_back()


class _OnDisk:
    """The lease of a folder on a disk or a mount: a file that is read, written and read again."""

    def __init__(self, out: str, mine: dict[str, Any], beat_s: float) -> None:
        self._path, self._mine, self._beat_s, self._count = f"{out}/{LEASE}", mine, beat_s, 0

    def take(self, patience_s: float) -> None:
        found = _read(self._path)
        elsewhere = found is not None and found.get("boot") != self._mine["boot"]
        if elsewhere and _moves(self._path, found, patience_s):
            raise LeaseConflict(found or {})
        write_json(self._path, {**self._mine, "count": 0})
        if elsewhere:  # two may have come at once: the one whose write stands has it
            time.sleep(self._beat_s / 2)
            now = _read(self._path)
            if now is None or now.get("id") != self._mine["id"]:
                raise LeaseConflict(now or {})

    def renew(self) -> None:
        now = _read(self._path)
        if now is not None and now.get("id") != self._mine["id"]:
            raise LeaseConflict(now)
        self._count += 1
        write_json(self._path, {**self._mine, "count": self._count})

    def give_back(self) -> None:
        Path(self._path).unlink()


def _read(path: str) -> dict[str, Any] | None:
    try:
        return read_object(path)
    except (FileNotFoundError, ValueError):
        return None


def _moves(path: str, seen: dict[str, Any] | None, patience_s: float) -> bool:
    """Whether the lease changes within so many seconds. One that is given back meanwhile does not."""
    waiting = TakeoverWait(path, seen or {}, patience_s)
    while waiting.goes_on():
        now = _read(path)
        if now is None:
            return False
        if now != seen:
            return True
    return False


def _held(out: str, found: dict[str, Any]) -> RunFolderError:
    return RunFolderError(
        f"{out} is being written by another run ({describe_holder(found)}): wait for it, end it, or choose "
        "another --out"
    )
