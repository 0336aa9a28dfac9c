"""The fence of a run, which lets only the newest attempt write to the run's folder; older attempts stop.

A driver takes the next attempt number together with the lease; its first group of workers writes under that number,
each later group under a new one. A process that was stopped or cut off keeps working when it comes back: before it
writes anything it reads a newer number and ends. Files are replaced only in the version that was read before the number
was compared, so an attempt that is overtaken in between conflicts with what the newer one writes."""

import contextlib
import copy
import json
import socket
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from lemur_ray.host.exit_codes import ExitCode
from lemur_ray.storage.bucket_lease import decode_record
from lemur_ray.storage.conditional_writes import VersionConflict, copy_if, read_version, write_if
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped

ATTEMPT = ".run.attempt"


class Superseded(TrainingStopped, RunFolderError):
    """Raised when a newer attempt has taken over this run: this one must write nothing more and is not restarted."""

    exit_code = ExitCode.OVERTAKEN


class Fence:
    """The right of one attempt to write to a run folder, on a disk or in a bucket. Picklable: workers get a copy."""

    def __init__(self, out: str, *, confirm: Callable[[], object] = lambda: None, after: "Fence | None" = None) -> None:
        """Take the next attempt number, after which earlier attempts can no longer write. Raises OSError.
        confirm: called before the number is written; raises if this process has lost the lease. after: the previous
        attempt of the same driver; raises Superseded if that is no longer the newest attempt."""
        self.out, self._id, self._one_group = out, uuid.uuid4().hex, after is not None
        while True:
            stored = read_version(f"{out}/{ATTEMPT}")
            record = decode_record(stored)
            if after is not None and record.get("id") != after._id:
                raise after._superseded(record)
            confirm()
            self.number = int(record.get("attempt", 0)) + 1
            self.driver: int = self.number if after is None else after.driver
            """Number of the first attempt of the same driver."""
            mine = {"attempt": self.number, "id": self._id, "host": socket.gethostname(), "driver": self.driver}
            try:
                write_if(f"{out}/{ATTEMPT}", json.dumps(mine).encode(), stored[1] if stored else None)
                return
            except VersionConflict:
                continue  # another attempt took that number first

    def for_group(self) -> "Fence":
        """A copy for one group of workers; ``check`` raises once the same driver has started its next group."""
        group = copy.copy(self)
        group._one_group = True
        return group

    def check(self) -> None:
        """Raises Superseded if a newer attempt has begun, OSError if the storage does not answer.
        For a driver, attempts that it began for its own groups of workers do not count as newer."""
        self._record_version()

    def mark(self, url: str) -> None:
        """Create the object ``url`` in the run's ``gs://`` bucket, a commit marker with the attempt's record.
        The service creates it only while no newer attempt has begun, so a process that was suspended in this call
        cannot commit later. Raises Superseded if a newer attempt has begun, OSError if the storage fails."""
        while True:
            try:
                copy_if(f"{self.out}/{ATTEMPT}", self._record_version(), url)
                return
            except VersionConflict:
                continue  # a newer attempt, of this driver or another

    def _record_version(self) -> str:
        """Version of the object with the newest attempt's record. Raises Superseded, OSError as ``check`` does."""
        stored = read_version(f"{self.out}/{ATTEMPT}")
        now = decode_record(stored)
        is_own = now.get("id") == self._id or (not self._one_group and now.get("driver") == self.driver)
        if stored is None or not is_own:
            raise self._superseded(now)
        return stored[1]

    @contextlib.contextmanager
    def explaining_errors(self) -> Iterator[None]:
        """Context that turns any error into Superseded if a newer attempt has begun, as that may have moved files."""
        try:
            yield
        except Superseded:
            raise
        except Exception:
            with contextlib.suppress(OSError):
                self.check()
            raise

    def write(self, name: str, data: bytes) -> None:
        """Replace a small file of the run by ``data``; nothing is written if it has that content. name: relative to the
        run folder. Raises Superseded if a newer attempt has begun, OSError if the storage fails."""
        url = f"{self.out}/{name}"
        while True:
            stored = read_version(url)
            self.check()
            if stored is not None and stored[0] == data:
                return
            try:
                write_if(url, data, stored[1] if stored else None)
                return
            except VersionConflict:
                continue  # a newer attempt, then the next check raises

    def write_json(self, name: str, value: dict[str, Any]) -> dict[str, Any]:
        """Write a JSON object, with the attempt number added as field ``attempt``, to the run's file ``name``; returns
        what was written. Raises Superseded if a newer attempt has begun, OSError if the storage fails."""
        value = {**value, "attempt": self.number}
        self.write(name, json.dumps(value, indent=1).encode())
        return value

    def _superseded(self, newer: dict[str, Any]) -> Superseded:
        return Superseded(
            f"attempt {self.number} of {self.out} was overtaken by attempt {newer.get('attempt')} on "
            f"{newer.get('host')}: this one ends and writes nothing more, the newer one goes on from what was committed"
        )
