"""Bytes of one remote file into one file here: goes on where an earlier try, or an earlier process, has stopped.

What came so far lies in a file of its own with a note of which version of the remote file it is of. Knows no protocol.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from lemur_ray.host.json_files import NotJson, read_json
from lemur_ray.outside_data.provenance import write_whole
from lemur_ray.outside_data.source import FetchError, readable

TRIES = 5
"""In a row that bring no byte."""
LONGEST_WAIT_S = 300.0


class Interrupted(Exception):
    """The network or the server failed, and may not fail again. ``wait_s``: as long as the server asks to wait."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


@dataclass(frozen=True)
class Seen:
    """What a server says of a file before it is read."""

    size: int | None
    version: str
    """An ETag or the like: two that differ are of two contents."""
    revision: str = ""
    """The commit that was served."""


class Remote(Protocol):
    """One file elsewhere."""

    def look(self) -> Seen:
        """Raises Interrupted, FetchError."""
        ...

    def append(self, file: BinaryIO, have: int, seen: Seen) -> None:
        """Reads what follows the first ``have`` bytes, at whose end ``file`` stands; may begin again with an empty
        ``file`` where the server cannot do that. Raises Interrupted, FetchError, OSError."""
        ...


def transfer(remote: Remote, part: Path, say: Callable[[str], None]) -> Seen:
    """Brings all of ``remote`` into ``part``. Raises FetchError where it does not come, and keeps what did; OSError."""
    failed = 0
    while True:
        have = _size(part)
        try:
            seen = remote.look()
            _same_version_or_nothing(part, seen)
            _append(remote, part, seen)
            if (came := _size(part)) == (came if seen.size is None else seen.size):
                return seen
            raise Interrupted(f"it ended after {came} of {seen.size} bytes")
        except Interrupted as error:
            came = _size(part)
            failed = 1 if came > have else failed + 1
            if failed >= TRIES:
                kept = f"; the {readable(came)} that came are kept, the same command goes on" if came else ""
                raise FetchError(f"{error}; tried {TRIES} times{kept}") from error
            wait = min(error.wait_s or 2.0 ** (failed - 1), LONGEST_WAIT_S)
            say(f"{error}; going on at {readable(came) if came else 'the beginning'} in {wait:g} s")
            time.sleep(wait)


def _append(remote: Remote, part: Path, seen: Seen) -> None:
    if seen.size is not None and _size(part) > seen.size:
        part.unlink()  # a server that said another size before, or wrote more than it had
    if seen.size is not None and _size(part) == seen.size:
        part.touch()
        return
    with part.open("r+b" if part.exists() else "w+b") as file:
        file.seek(0, 2)
        remote.append(file, file.tell(), seen)


def _same_version_or_nothing(part: Path, seen: Seen) -> None:
    """Bytes of two versions are never joined."""
    note = part.with_name(f"{part.name}.json")
    known: object = None
    with suppress(FileNotFoundError, NotJson):
        known = read_json(note)
    now = {"version": seen.version, "size": seen.size, "revision": seen.revision}
    if known != now or not seen.version:
        part.unlink(missing_ok=True)
        write_whole(note, json.dumps(now))


def forget(part: Path) -> None:
    """Nothing of it is left."""
    part.unlink(missing_ok=True)
    part.with_name(f"{part.name}.json").unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
