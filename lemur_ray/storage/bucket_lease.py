"""A lease that lets one process at a time write to a bucket folder: a small object replaced by compare-and-swap only.

Among hosts that compete for it exactly one succeeds. The holder renews it; if it does not, it is taken over."""

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
    """Another process holds a lease or claim; ``holder`` is the JSON content of its object (id, host and pid)."""

    def __init__(self, holder: dict[str, Any]) -> None:
        super().__init__(str(holder))
        self.holder = holder


class BucketLease:
    """The lease of one bucket folder, as acquired, renewed and released by this process."""

    def __init__(self, out: str, mine: dict[str, Any]) -> None:
        """out: URL of the folder. mine: id, host and pid of this process; the id is unique."""
        self._url, self._mine = f"{out}/{LEASE}", mine
        self._version: str | None = None
        self._record: dict[str, Any] = {}

    @property
    def number(self) -> int:
        """Number of this holder among all successive holders of the lease, from 1; 0 before ``take``."""
        return int(self._record.get("holder", 0))

    def take(self, patience_s: float) -> None:
        """Acquire the lease at once if it is free or released, else after waiting ``patience_s`` s without a renewal.
        Raises LeaseConflict if it is renewed or taken by another process meanwhile, OSError if the bucket fails."""
        record = read_version(self._url)
        before = decode_record(record)
        if before and not before.get("given_back"):
            record = self._wait_for_silence(record, patience_s)
        number = int(before.get("holder", 0)) + 1
        self._write({**self._mine, "holder": number, "count": 0}, record[1] if record else None)

    def renew(self) -> None:
        """Renew the lease by writing its object. Raises LeaseConflict if another process has taken it over, OSError."""
        self._write({**self._record, "count": self._record["count"] + 1}, self._version)

    def give_back(self) -> None:
        """Release the lease for other processes. Raises LeaseConflict if one has taken it over already, OSError."""
        self._write({**self._record, "given_back": True}, self._version)

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
        self._record = value

    def _wait_for_silence(self, seen: tuple[bytes, str] | None, patience_s: float) -> tuple[bytes, str] | None:
        """Wait until the lease is released or unchanged for ``patience_s``; returns (content, version) of its object.
        Raises LeaseConflict if it is renewed meanwhile. Only the clock of this host is used."""
        waiting = TakeoverWait(self._url, decode_record(seen), patience_s)
        while waiting.keep_waiting():
            now = read_version(self._url)
            if now != seen:
                if decode_record(now).get("given_back"):
                    return now
                raise LeaseConflict(decode_record(now) or decode_record(seen))
        return seen


def describe_holder(holder: dict[str, Any]) -> str:
    """Text for messages that names the process that holds a lease. ``holder``: the JSON content of its object."""
    return f"process {holder.get('pid')} on {holder.get('host')}" if holder.get("pid") else "another process"


class TakeoverWait:
    """Timer of the wait of ``patience_s`` seconds before a lease is taken over. Prints one notice on stderr when the
    holder has missed a renewal."""

    def __init__(self, url: str, holder: dict[str, Any], patience_s: float) -> None:
        self._url, self._holder, self._patience_s = url, holder, patience_s
        self._began, self._noticed = time.monotonic(), False

    def keep_waiting(self) -> bool:
        """Sleep at most half a second and return True; return False at once when ``patience_s`` seconds have passed."""
        waited_s = time.monotonic() - self._began
        if waited_s >= self._patience_s:
            return False
        if waited_s > 1.5 * self._patience_s / MISSED_HEARTBEATS and not self._noticed:
            self._noticed = True
            print(
                f"{self._url}: {describe_holder(self._holder)} has not given it back: it is taken over if that "
                f"shows no sign of life for {self._patience_s:g} s",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(min(0.5, self._patience_s / 20))
        return True


def decode_record(record: tuple[bytes, str] | None) -> dict[str, Any]:
    """The JSON object in a (content, version) pair as ``read_version`` returns it; {} if the pair is None or its
    content is no JSON object."""
    try:
        value = json.loads(record[0]) if record else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
