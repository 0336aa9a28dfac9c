"""Remote files on GitHub, or at any http, https, s3 or gs address, through fsspec.

LEMUR_GIT_MIRROR names a host that serves GitHub's raw files and archives, for networks without access to GitHub."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

import aiohttp
import fsspec

from lemur_ray.outside_data.source import Address, FetchError
from lemur_ray.outside_data.transfer import Interrupted, RemoteInfo

BLOCK = 4 << 20
"""Bytes per request; at most so many are transferred twice after a failure."""
STALLED_S = 60.0
"""Seconds without a byte after which a connection counts as lost."""


def url_of(address: Address) -> str:
    """The URL of an address: GitHub's raw file or archive of a commit, or the URL itself."""
    if address.kind != "git":
        return address.text
    mirror = os.environ.get("LEMUR_GIT_MIRROR", "").rstrip("/")
    if address.file.endswith("/") or not address.file:
        return f"{mirror or 'https://codeload.github.com'}/{address.repo}/tar.gz/{address.commit}"
    return f"{mirror or 'https://raw.githubusercontent.com'}/{address.repo}/{address.commit}/{quote(address.file)}"


class WebFile:
    """A ``transfer.Remote``: a file on GitHub or at a URL."""

    def __init__(self, address: Address) -> None:
        self._url = url_of(address)
        self._host = urlsplit(self._url).netloc
        self._commit = address.commit if address.is_pinned else ""
        options: dict[str, Any] = {"skip_instance_cache": True}
        if self._url.startswith("http"):
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=STALLED_S, sock_read=STALLED_S)
            options["client_kwargs"] = {"trust_env": True, "timeout": timeout}
        try:
            self._files, self._path = fsspec.core.url_to_fs(self._url, **options)
        except ImportError as error:
            raise FetchError(f"{self._url}: {error}; install the extra [s3] or [gcs]") from error

    def look(self) -> RemoteInfo:
        with self._translated_errors():
            info = self._files.info(self._path)
        version = next((str(info[name]) for name in ("ETag", "etag", "md5Hash", "Last-Modified") if info.get(name)), "")
        # A commit's file does not change, so where GitHub names no version the commit is one.
        return RemoteInfo(info.get("size"), version or self._commit, self._commit)

    def append(self, file: BinaryIO, have: int, info: RemoteInfo) -> None:
        with self._translated_errors():
            if info.size is not None:
                # Block by block from the start: aiohttp returns nothing of a response that breaks off.
                with suppress(ValueError):  # the server sends the whole file whatever is asked for
                    self._read_on(file, have, info.size)
                    return
            file.seek(0)
            file.truncate()
            with self._files.open(self._path, "rb", block_size=0) as remote:
                while chunk := remote.read(BLOCK):
                    file.write(chunk)

    def _read_on(self, file: BinaryIO, have: int, size: int) -> None:
        with self._files.open(self._path, "rb", block_size=BLOCK, cache_type="none") as remote:
            remote.seek(have)
            while have < size and (chunk := remote.read(min(BLOCK, size - have))):
                have += file.write(chunk)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translate the client's errors into FetchError and Interrupted."""
        try:
            yield
        except (aiohttp.ClientError, FileNotFoundError, PermissionError, TimeoutError) as error:
            answered = _answer(error)
            if answered is None and isinstance(error, FileNotFoundError | PermissionError):
                raise FetchError(f"{self._url}: not there: its owners removed or renamed it") from error
            if answered is None:
                raise Interrupted(f"{self._host}: {type(error).__name__}: {error}") from error
            status = answered.status
            asked = answered.headers.get("Retry-After", "") if answered.headers else ""
            if status in (408, 429) or status >= 500:
                raise Interrupted(
                    f"{self._host} answered {status}", float(asked) if asked.isdigit() else 0.0
                ) from error
            if status in (401, 403):
                raise FetchError(f"{self._url}: {self._host} lets nobody read it ({status})") from error
            raise FetchError(f"{self._url}: not there ({status}): its owners removed or renamed it") from error


def _answer(error: BaseException | None) -> aiohttp.ClientResponseError | None:
    """The HTTP response behind an error, if any."""
    while error is not None and not isinstance(error, aiohttp.ClientResponseError):
        error = error.__cause__
    return error
