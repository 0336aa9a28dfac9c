"""Fencing of a run in a bucket: only the newest group of workers may commit checkpoints.

A host that was cut off keeps working and may reach the bucket again; before its next commit it reads a newer attempt
number and stops. Knows nothing of what a run writes.
"""

from __future__ import annotations

import json
import socket
import uuid

from lemur_ray.storage.bucket_lease import decode_record
from lemur_ray.storage.conditional_writes import VersionConflict, read_version, write_if
from lemur_ray.train.run.folder import TrainingStopped

ATTEMPT = ".run.attempt"


class Superseded(TrainingStopped):
    """Raised when a newer attempt has taken over this run: this one must commit nothing more."""


class Fence:
    """The attempt number of one group of workers of a run in a bucket."""

    def __init__(self, out: str) -> None:
        """Take the next attempt number, which fences off earlier groups. Raises OSError."""
        self._url, self._id = f"{out}/{ATTEMPT}", uuid.uuid4().hex
        while True:
            stored = read_version(self._url)
            self.number = int(decode_record(stored).get("attempt", 0)) + 1
            mine = {"attempt": self.number, "id": self._id, "host": socket.gethostname()}
            try:
                write_if(self._url, json.dumps(mine).encode(), stored[1] if stored else None)
                return
            except VersionConflict:
                continue  # another group took that number first

    def check(self) -> None:
        """Raises Superseded if a newer group has started, OSError if the bucket does not answer."""
        now = decode_record(read_version(self._url))
        if now.get("id") != self._id:
            raise Superseded(
                f"attempt {self.number} of this run was overhauled by attempt {now.get('attempt')} on "
                f"{now.get('host')}: it commits nothing more, and nothing that it had committed is lost"
            )
