"""The lease of a folder in a bucket: a small object that is replaced by compare-and-swap only.

Among hosts that compete for it exactly one succeeds, and none overwrites a version that it has not read. Knows nothing
of the folder's content.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from lemur_ray.storage.conditional_writes import VersionConflict, read_version, write_if

LEASE = ".run.lease"
HEARTBEAT_S = 5.0
"""Seconds between two renewals."""
MISSED_HEARTBEATS = 4
"""Number of missed renewals after which a lease may be taken over."""


class LeaseConflict(Exception):
    """Another process holds the lease; ``holder`` is the content of the lease object."""

    def __init__(self, holder: dict[str, Any]) -> None:
        super().__init__(str(holder))
        self.holder = holder


class BucketLease:
    """The lease of one run folder from the view of one process."""

    def __init__(self, out: str, mine: dict[str, Any]) -> None:
        """mine: id, host and pid of this process; the id is unique."""
        self._url, self._mine = f"{out}/{LEASE}", mine
        self._version: str | None = None
        self._said: dict[str, Any] = {}

    @property
    def number(self) -> int:
        """Ordinal of this holder among all holders of the lease, from 1; 0 before ``take``."""
        return int(self._said.get("holder", 0))

    def take(self, patience_s: float) -> None:
        """Acquire a lease that is free, released, or not renewed for ``patience_s``. Raises LeaseConflict, OSError."""
        record = read_version(self._url)
        before = decode_record(record)
        if before and not before.get("given_back"):
            record = self._once_silent(record, patience_s)
        number = int(before.get("holder", 0)) + 1
        self._write({**self._mine, "holder": number, "count": 0}, record[1] if record else None)

    def renew(self) -> None:
        """Renew the lease. Raises LeaseConflict if another process has taken it over, OSError."""
        self._write({**self._said, "count": self._said["count"] + 1}, self._version)

    def give_back(self) -> None:
        """Release the lease. Raises as ``renew``."""
        self._write({**self._said, "given_back": True}, self._version)

    def _write(self, value: dict[str, Any], version: str | None) -> None:
        try:
            self._version = write_if(self._url, json.dumps(value).encode(), version)
        except VersionConflict as error:
            now = read_version(self._url)
            holder = decode_record(now)
            # Not a conflict: an earlier write of this process whose response was lost.
            if now is None or holder.get("id") != self._mine["id"]:
                raise LeaseConflict(holder) from error
            self._write(value, now[1])  # a takeover between the two is a conflict again
        self._said = value

    def _once_silent(self, seen: tuple[bytes, str] | None, patience_s: float) -> tuple[bytes, str] | None:
        """Wait until the lease is released or unchanged for ``patience_s``; returns it. Compares no clocks of two
        hosts."""
        waiting = TakeoverWait(self._url, decode_record(seen), patience_s)
        while waiting.keep_waiting():
            now = read_version(self._url)
            if now != seen:
                if decode_record(now).get("given_back"):
                    return now
                raise LeaseConflict(decode_record(now) or decode_record(seen))
        return seen


def describe_holder(holder: dict[str, Any]) -> str:
    """Text that names a holder in messages."""
    return f"process {holder.get('pid')} on {holder.get('host')}" if holder.get("pid") else "another process"


class TakeoverWait:
    """Wait before a takeover. Prints one notice when the holder has missed a renewal and may be lost."""

    def __init__(self, url: str, holder: dict[str, Any], patience_s: float) -> None:
        self._url, self._holder, self._patience_s = url, holder, patience_s
        self._began, self._said = time.monotonic(), False

    def keep_waiting(self) -> bool:
        """Sleep briefly; returns False once ``patience_s`` has passed."""
        waited_s = time.monotonic() - self._began
        if waited_s >= self._patience_s:
            return False
        if waited_s > 1.5 * self._patience_s / MISSED_HEARTBEATS and not self._said:
            self._said = True
            print(
                f"{self._url}: {describe_holder(self._holder)} has not given it back: it is taken over if that "
                f"shows no sign of life for {self._patience_s:g} s",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(min(0.5, self._patience_s / 20))
        return True


def decode_record(record: tuple[bytes, str] | None) -> dict[str, Any]:
    """JSON content of a (content, version) pair; empty if it is None or not a JSON object."""
    try:
        value = json.loads(record[0]) if record else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
