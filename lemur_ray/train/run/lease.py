"""A renewed lease that allows one writer of a run folder across machines.

A kernel lock (``folder.lock``) works on one machine and on some network file systems, never in a bucket. The lease is a
small file with a counter that its holder increments every few seconds; another process watches whether the counter
changes, so no clocks of two machines are compared. In a bucket it is taken and renewed by compare-and-swap
(``bucket_lease``). Knows nothing of what a run writes."""

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
from lemur_ray.train.run.fence import Fence, Superseded
from lemur_ray.train.run.folder import RunFolderError, RunInUse, read_object, write_json
from lemur_ray.train.run.goodput import clock


@contextlib.contextmanager
def lease(out: str, *, beat_s: float = HEARTBEAT_S) -> Iterator[Fence]:
    """Context manager: hold ``out/.run.lease`` and renew it in the background every ``beat_s`` seconds; removed at a
    clean end. Yields the fence of a new attempt. The kernel lock, which the caller holds, shows that a holder on this
    machine is dead, so its lease is taken at once. A lease of another machine, or any in a bucket, is watched for
    ``MISSED_HEARTBEATS`` beats. Raises RunInUse if another process renews the lease, RunFolderError if it cannot be
    read, Superseded if one took it over while this one could not renew it: that interrupts the main thread."""
    mine = {"id": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid(), "boot": clock()["boot"]}
    held = BucketLease(out, mine) if is_bucket(out) else _OnDisk(out, mine, beat_s)
    try:
        held.take(MISSED_HEARTBEATS * beat_s)
        fence = Fence(out, confirm=held.renew)
    except LeaseConflict as other:
        holder = describe_holder(other.holder)
        raise RunInUse(
            f"{out} is being written by another run ({holder}): wait for it, end it, or choose another --out"
        ) from None
    except OSError as error:
        raise RunFolderError(f"{out}: whether another run writes it cannot be told: {error}") from error

    def renew() -> None:
        with contextlib.suppress(OSError):  # a full disk or unreachable bucket: the next beat tries again
            held.renew()

    taken: list[Exception] = []
    try:
        with run_heartbeat(renew, beat_s) as taken:
            yield fence
    except LeaseConflict as other:
        raise Superseded(
            f"{out} could not be reached for a while and was taken over by another run "
            f"({describe_holder(other.holder)}): this one stops, and nothing that it had committed is lost"
        ) from None
    finally:
        with contextlib.suppress(OSError, LeaseConflict):
            if not taken:
                held.give_back()


def is_renewed(out: str) -> bool:
    """Whether a process on another host, or any in a bucket, renews the lease of a run folder. out: that folder.
    Watches it for MISSED_HEARTBEATS times HEARTBEAT_S seconds if there is a lease."""
    stored = _read(f"{out}/{LEASE}")
    if stored is None or (not is_bucket(out) and stored.get("boot") == clock()["boot"]):
        return False  # on this host the kernel lock tells
    return _changes(f"{out}/{LEASE}", stored, MISSED_HEARTBEATS * HEARTBEAT_S)


class _OnDisk:
    """The lease of a folder on a disk or mount: written, then read again to detect a concurrent taker."""

    def __init__(self, out: str, mine: dict[str, Any], beat_s: float) -> None:
        self._path, self._mine, self._beat_s, self._count = f"{out}/{LEASE}", mine, beat_s, 0

    def take(self, patience_s: float) -> None:
        stored = _read(self._path)
        elsewhere = stored is not None and stored.get("boot") != self._mine["boot"]
        if elsewhere and _changes(self._path, stored, patience_s):
            raise LeaseConflict(stored or {})
        write_json(self._path, {**self._mine, "count": 0})
        if elsewhere:  # two processes may take it at once: the last write wins
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


def _changes(path: str, stored: dict[str, Any] | None, patience_s: float) -> bool:
    """Whether a holder renews the lease within ``patience_s`` seconds; False if it is removed."""
    waiting = TakeoverWait(path, stored or {}, patience_s)
    while waiting.keep_waiting():
        now = _read(path)
        if now is None:
            return False
        if now != stored:
            return True
    return False
