"""Sequential and random reads of a file, local or remote, that survive transient errors.

Bytes are fetched by range. A failed or short fetch is retried from the first missing byte, unnoticed by decompressors
and parsers. A lasting failure raises ``ReadFailure`` with file and position; no read ends early without an error."""

import io
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol, TypeVar, cast

from lemur_ray.outside_data.source import FetchError
from lemur_ray.outside_data.transfer import Interrupted
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.retry_policy import BucketError

_T = TypeVar("_T")

TRIES = 8
"""Number of consecutive fetches without a byte after which a read fails."""
_TRIES_OF_CLIENT = 3
"""The same number for errors that a bucket's client has retried itself, and for an object that is listed but absent: a
bucket may list an object before it serves it."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""Seconds before the first and at most before the last retry, unless the server asks for more."""
_VERSIONS = ("generation", "ETag", "etag", "md5Hash")
"""Keys under which bucket clients report the version of an object, in order of preference."""
BLOCK = 4 << 20
"""Maximum bytes per fetch of a remote file; an eighth of it for a local file."""


class ReadFailure(OSError):
    """A file cannot be read completely: it is damaged, cut short, gone, changed, or its storage fails for good.
    file: name of the file. position: byte, row group or record at which reading stopped. reason: why, for people."""

    def __init__(self, file: str, position: str, reason: str) -> None:
        super().__init__(f"{file}, {position}: {reason}")
        self.file, self.position, self.reason = file, position, reason

    def __reduce__(self) -> Any:
        return type(self), (self.file, self.position, self.reason)


class ByteRanges(Protocol):
    """A file whose bytes can be fetched by range. ``version``: an ETag or the like; may be empty."""

    size: int
    version: str

    def fetch(self, begin: int, end: int) -> bytes:
        """Bytes from ``begin`` to ``end`` (exclusive), possibly fewer, but at least one. Raises OSError or Interrupted
        for a temporary failure, FetchError if the file is gone, forbidden or changed."""
        ...

    def close(self) -> None:
        """Release connections and files; no further fetch is possible."""
        ...


class LocalRanges:
    """``ByteRanges`` of a local file. size: bytes as listed, -1 if unknown. Raises FetchError if the file cannot be
    opened, becomes shorter while it is read, or, where a size is listed, has another one or is written meanwhile."""

    def __init__(self, path: str, size: int = -1) -> None:
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed with this object
        except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
            raise FetchError(f"cannot be opened ({error.strerror})") from error
        about = os.fstat(self._file.fileno())
        self.size, self.version, self._modified_ns = about.st_size, "", about.st_mtime_ns if size >= 0 else None
        if size not in (-1, about.st_size):
            self._file.close()
            raise FetchError(f"changed since it was listed: {about.st_size} bytes; expected {size} bytes")

    def fetch(self, begin: int, end: int) -> bytes:
        data = os.pread(self._file.fileno(), min(end - begin, BLOCK // 8), begin)
        about = os.fstat(self._file.fileno())
        if about.st_size < self.size:
            raise FetchError("the file became shorter while it was read")
        if self._modified_ns not in (None, about.st_mtime_ns):
            raise FetchError("the file was written to while it was read")
        return data

    def close(self) -> None:
        self._file.close()


def object_version(about: Mapping[str, Any]) -> str:
    """Version of an object from its description by an fsspec client (``find``, ``info``); empty if it names none."""
    return next((str(about[key]) for key in _VERSIONS if about.get(key)), "")


class BucketRanges:
    """``ByteRanges`` of an object in a bucket or another fsspec file system. ``size``: bytes as listed, -1 if unknown.
    ``version``: as listed; compared after every fetch, unless it is empty or the client reports none. Without it the
    size is queried, and FetchError raised if it is not as listed."""

    def __init__(self, url: str, size: int = -1, version: str = "") -> None:
        self._files, self._path = file_system(url)
        self.size, self.version = size, version
        if size < 0 or not version:
            self.size = int(self._files.info(self._path)["size"])
        if size not in (-1, self.size):
            raise FetchError(f"changed since it was listed: {self.size} bytes; expected {size} bytes")

    def fetch(self, begin: int, end: int) -> bytes:
        data = bytes(self._files.cat_file(self._path, start=begin, end=end))
        now = object_version(self._files.info(self._path)) if self.version else ""
        if now and now != self.version:
            raise FetchError(f"changed since it was listed: version {now}; expected {self.version}")
        return data

    def close(self) -> None:
        """Nothing to release: the client is shared by the process."""


def open_ranges(uri: str, size: int = -1, version: str = "") -> ByteRanges:
    """Open a local path, an object of a bucket, an ``https://`` address or an ``hf://datasets/...`` file.
    size, version: as listed (-1, empty: unknown); a file of another size (in a bucket: one without a version), or a
    remote file of another version, raises FetchError when it is opened or read. Raises FetchError or OSError if the
    file is missing or not accessible, Interrupted for a temporary failure, ImportError if the bucket's client is not
    installed."""
    if uri.startswith("hf://"):
        from lemur_ray.outside_data.hub import HubRanges, hub_address  # a second to import, for such files only

        return HubRanges(hub_address(uri), size, version)
    if uri.startswith(("http://", "https://")):
        from lemur_ray.outside_data.http_ranges import HttpRanges

        return HttpRanges(uri, size, version)
    return BucketRanges(uri, size, version) if "://" in uri else LocalRanges(uri.removeprefix("file://"), size)


class ByteStream(io.RawIOBase):
    """Readable, seekable stream over the bytes of a file that retries temporary failures, so reads are never short
    before the end. ``name``: of the file, in errors. ``retries`` counts failed fetches. Reading raises ReadFailure if
    the file is damaged, gone or changed, or failures persist."""

    def __init__(self, uri: str, name: str = "", *, size: int = -1, version: str = "") -> None:
        self.name, self.retries, self._at, self._buffer, self._buffer_at = name or uri, 0, 0, b"", 0
        self._ranges = patiently(lambda: open_ranges(uri, size, version), self.name, "opening", self._count)
        self.size, self.version = self._ranges.size, self._ranges.version

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence])
        return self._at

    def readinto(self, target: Any) -> int:
        filled, wanted = 0, max(0, min(len(target), self.size - self._at))
        while filled < wanted:
            begin = self._at - self._buffer_at
            if not 0 <= begin < len(self._buffer):
                position = f"byte {self._at} of {self.size}"
                self._buffer = patiently(self._fetched, self.name, position, self._count)
                self._buffer_at, begin = self._at, 0
            piece = memoryview(self._buffer)[begin : begin + wanted - filled]
            target[filled : filled + len(piece)] = piece
            filled += len(piece)
            self._at += len(piece)
        return filled

    def close(self) -> None:
        if not self.closed and hasattr(self, "_ranges"):  # it has none if opening failed
            self._ranges.close()
        super().close()

    def _fetched(self) -> bytes:
        if data := self._ranges.fetch(self._at, min(self.size, self._at + BLOCK)):
            return data
        raise EOFError("nothing was sent")

    def _count(self) -> None:
        self.retries += 1


def patiently(call: Callable[[], _T], file: str, position: str, failed: Callable[[], None] = lambda: None) -> _T:
    """Result of ``call``, which is repeated with growing pauses after temporary errors (network, server, OSError);
    ``failed`` is called before each repetition. Raises ReadFailure with ``file`` and ``position`` after TRIES attempts,
    or at once for a lasting error."""
    wait_s = FIRST_WAIT_S
    for attempt in range(1, TRIES + 1):
        try:
            return call()
        except (FetchError, ReadFailure, PermissionError) as error:
            raise ReadFailure(file, position, str(error)) from error
        except (OSError, EOFError, Interrupted) as error:
            tries = _TRIES_OF_CLIENT if isinstance(error, BucketError | FileNotFoundError) else TRIES
            if attempt >= tries:
                reason = f"{type(error).__name__}: {error} ({tries} tries)"
                raise ReadFailure(file, position, reason) from error
            failed()
            asked_s = getattr(error, "wait_s", 0.0)
            time.sleep(asked_s or wait_s * random.uniform(0.5, 1.5))
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
    raise AssertionError


@contextmanager
def open_stream(uri: str, name: str = "", *, size: int = -1, version: str = "") -> Iterator[BinaryIO]:
    """Context manager for a buffered ``ByteStream`` of ``uri``. ``name``: in errors, by default the URI. Raises
    ReadFailure if the file cannot be opened."""
    with ByteStream(uri, name, size=size, version=version) as raw:
        buffer = min(1 << 20, max(raw.size, 1 << 12))  # small for small files: a corpus may have millions of them
        with io.BufferedReader(raw, buffer) as stream:
            yield cast(BinaryIO, stream)


def read_all(uri: str, limit: int) -> bytes:
    """Content of a small file at a path, URL or bucket. Raises ReadFailure, also beyond ``limit`` bytes."""
    with open_stream(uri) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise ReadFailure(uri, f"byte {limit}", f"expected at most {limit} bytes")
    return data
