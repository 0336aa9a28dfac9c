"""The lease of a folder in a bucket: a small object that is only ever replaced by compare-and-swap.

Of any number of hosts that want it at once exactly one gets it, and none overwrites what it has not seen. Knows nothing
of what is written under it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from lemur_ray.storage.conditional_writes import VersionConflict, read_version, write_if

LEASE = ".run.lease"
HEARTBEAT_S = 5.0
"""Seconds between two counts."""
MISSED_HEARTBEATS = 4
"""Counts that may fail to come before a lease is taken over."""


class LeaseConflict(Exception):
    """Somebody else has it; ``holder`` is what the object says."""

    def __init__(self, holder: dict[str, Any]) -> None:
        super().__init__(str(holder))
        self.holder = holder


class BucketLease:
    """The lease of one run folder, as one process sees it."""

    def __init__(self, out: str, mine: dict[str, Any]) -> None:
        """mine: id, host, pid of this process; the id is of no other."""
        self._url, self._mine = f"{out}/{LEASE}", mine
        self._version: str | None = None
        self._said: dict[str, Any] = {}

    @property
    def number(self) -> int:
        """Of this holder among all that ever had it, from 1; 0 before it was taken."""
        return int(self._said.get("holder", 0))

    def take(self, patience_s: float) -> None:
        """Take a lease that is free, given back, or not counted up for so long. Raises HeldByAnother, OSError."""
        record = read_version(self._url)
        before = decode_record(record)
        if before and not before.get("given_back"):
            record = self._once_silent(record, patience_s)
        number = int(before.get("holder", 0)) + 1
        self._write({**self._mine, "holder": number, "count": 0}, record[1] if record else None)

    def renew(self) -> None:
        """Show that the holder lives. Raises HeldByAnother where it was taken over, OSError."""
        self._write({**self._said, "count": self._said["count"] + 1}, self._version)

    def give_back(self) -> None:
        """Leave it to whoever comes next. Raises as ``renew``."""
        self._write({**self._said, "given_back": True}, self._version)

    def _write(self, value: dict[str, Any], version: str | None) -> None:
        try:
            self._version = write_if(self._url, json.dumps(value).encode(), version)
        except VersionConflict as error:
            now = read_version(self._url)
            holder = decode_record(now)
            # An earlier write of ours whose answer never came, nor that of the question about it.
            if now is None or holder.get("id") != self._mine["id"]:
                raise LeaseConflict(holder) from error
            self._write(value, now[1])  # between both somebody may have taken it over
        self._said = value

    def _once_silent(self, seen: tuple[bytes, str] | None, patience_s: float) -> tuple[bytes, str] | None:
        """The lease once it stood still for so long, or was given back. No clocks of two hosts are compared."""
        waiting = TakeoverWait(self._url, decode_record(seen), patience_s)
        while waiting.goes_on():
            now = read_version(self._url)
            if now != seen:
                if decode_record(now).get("given_back"):
                    return now
                raise LeaseConflict(decode_record(now) or decode_record(seen))
        return seen


def describe_holder(holder: dict[str, Any]) -> str:
    """A holder, for a sentence."""
    return f"process {holder.get('pid')} on {holder.get('host')}" if holder.get("pid") else "another process"


class TakeoverWait:
    """For a lease to show that its holder lives; says so once that has missed a count: its host may be lost."""

    def __init__(self, url: str, holder: dict[str, Any], patience_s: float) -> None:
        self._url, self._holder, self._patience_s = url, holder, patience_s
        self._began, self._said = time.monotonic(), False

    def goes_on(self) -> bool:
        """Whether to look once more, after a moment."""
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
    """What an object says; nothing where there is none or it is none of ours."""
    try:
        value = json.loads(record[0]) if record else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
