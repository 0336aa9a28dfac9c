"""The number of the attempt that may commit to a run in a bucket.

A host that was cut off works on and may reach the bucket again: it is not trusted to be dead, but finds a newer number
before its next commit. Knows nothing of what a run writes.
"""

from __future__ import annotations

import json
import socket
import uuid

from lemur_ray.storage.bucket_lease import decode_record
from lemur_ray.storage.conditional_writes import VersionConflict, read_version, write_if
from lemur_ray.train.run.folder import TrainingStopped

ATTEMPT = ".run.attempt"


class Overhauled(TrainingStopped):
    """A newer attempt writes this run by now; this one commits nothing more."""


class Fence:
    """The number of one group of workers among all that ever wrote a run in a bucket."""

    def __init__(self, out: str) -> None:
        """Take the next number: from here on the groups before commit nothing more. Raises OSError."""
        self._url, self._id = f"{out}/{ATTEMPT}", uuid.uuid4().hex
        while True:
            found = read_version(self._url)
            self.number = int(decode_record(found).get("attempt", 0)) + 1
            mine = {"attempt": self.number, "id": self._id, "host": socket.gethostname()}
            try:
                write_if(self._url, json.dumps(mine).encode(), found[1] if found else None)
                return
            except VersionConflict:
                continue  # another group took that number a moment ago

    def check(self) -> None:
        """Raises Overhauled where a newer group has begun, OSError where the bucket does not answer."""
        now = decode_record(read_version(self._url))
        if now.get("id") != self._id:
            raise Overhauled(
                f"attempt {self.number} of this run was overhauled by attempt {now.get('attempt')} on "
                f"{now.get('host')}: it commits nothing more, and nothing that it had committed is lost"
            )
