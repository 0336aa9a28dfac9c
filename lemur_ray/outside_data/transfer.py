"""Downloads one remote file, resuming where an earlier attempt or process stopped.

A note beside the partial file names the version of the remote file that it belongs to. Knows no protocol."""

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
"""Number of consecutive attempts without a byte after which a transfer fails."""
LONGEST_WAIT_S = 300.0


class Interrupted(Exception):
    """Raised for a temporary failure of network or server. ``wait_s``: seconds that the server asks to wait, or 0."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


@dataclass(frozen=True)
class RemoteInfo:
    """Metadata of a remote file, before its content is read."""

    size: int | None
    version: str
    """An ETag or the like; different versions mean different contents."""
    revision: str = ""
    """The commit that was served."""


class Remote(Protocol):
    """A remote file that ``transfer`` can download."""

    def look(self) -> RemoteInfo:
        """Query size and version of the file. Raises Interrupted for a temporary failure, FetchError for any other."""
        ...

    def append(self, file: BinaryIO, have: int, info: RemoteInfo) -> None:
        """Append the content after the first ``have`` bytes to ``file``, which is positioned there; may truncate
        ``file`` and start again if the server cannot resume. Raises Interrupted for a temporary failure, FetchError for
        any other, OSError if ``file`` cannot be written."""
        ...


def transfer(
    remote: Remote, part: Path, say: Callable[[str], None], check: Callable[[RemoteInfo], None] = lambda info: None
) -> RemoteInfo:
    """Download all of ``remote`` into the file ``part``, continuing what is there if the version is the same, and
    return the remote's metadata. Temporary failures are retried; ``say`` receives a line for each. ``check``: called
    before every attempt, may refuse the file by FetchError. Raises FetchError if the download fails for good, OSError
    if ``part`` cannot be written."""
    failed = 0
    while True:
        have = _size(part)
        try:
            info = remote.look()
            check(info)
            _same_version_or_nothing(part, info)
            _append(remote, part, info)
            if (came := _size(part)) == (came if info.size is None else info.size):
                return info
            raise Interrupted(f"it ended after {came} of {info.size} bytes")
        except Interrupted as error:
            came = _size(part)
            failed = 1 if came > have else failed + 1
            if failed >= TRIES:
                kept = f"; the {readable(came)} that came are kept, the same command goes on" if came else ""
                raise FetchError(f"{error}; tried {TRIES} times{kept}") from error
            wait = min(error.wait_s or 2.0 ** (failed - 1), LONGEST_WAIT_S)
            say(f"{error}; going on at {readable(came) if came else 'the beginning'} in {wait:g} s")
            time.sleep(wait)


def _append(remote: Remote, part: Path, info: RemoteInfo) -> None:
    if info.size is not None and _size(part) > info.size:
        part.unlink()  # the server reported another size before, or sent more than it reported
    if info.size is not None and _size(part) == info.size:
        part.touch()
        return
    with part.open("r+b" if part.exists() else "w+b") as file:
        file.seek(0, 2)
        remote.append(file, file.tell(), info)


def _same_version_or_nothing(part: Path, info: RemoteInfo) -> None:
    """Remove the partial file if it is of another version."""
    note = part.with_name(f"{part.name}.json")
    known: object = None
    with suppress(FileNotFoundError, NotJson):
        known = read_json(note)
    now = {"version": info.version, "size": info.size, "revision": info.revision}
    if known != now or not info.version:
        part.unlink(missing_ok=True)
        write_whole(note, json.dumps(now))


def forget(part: Path) -> None:
    """Remove a partial file and the note beside it that names its version. Either may be missing."""
    part.unlink(missing_ok=True)
    part.with_name(f"{part.name}.json").unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
