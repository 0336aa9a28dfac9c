"""Ranges of a file at an http or https address, with the server's limits respected."""

import atexit
import functools
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from typing import IO
from urllib.parse import urlsplit

import httpx2

from lemur_ray.outside_data.source import FetchError
from lemur_ray.outside_data.transfer import Interrupted

STALLED_S = 60.0
"""Seconds without a byte after which a connection counts as lost."""


@functools.cache
def _client(process: int) -> httpx2.Client:
    """The client of a process, whose connections its children must not use: making one reads all certificates."""
    client = httpx2.Client(follow_redirects=True, timeout=STALLED_S)
    atexit.register(client.close)
    return client


class HttpRanges:
    """``ByteRanges`` of a file at a web address. A server without ranges sends it once, into a temporary file.
    size, version: as listed; -1 and empty: those of the first answer."""

    def __init__(self, url: str, size: int = -1, version: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.url, self.size, self.version = url, size, version
        self._headers = {"Accept-Encoding": "identity", **(headers or {})}
        self._copy: IO[bytes] | None = None
        if size <= 0:  # of a file that was listed as empty nothing else would be asked for
            self.fetch(0, 1)

    def fetch(self, begin: int, end: int) -> bytes:
        if self._copy is not None:
            self._copy.seek(begin)
            return self._copy.read(end - begin)
        try:
            headers = {**self._headers, "Range": f"bytes={begin}-{end - 1}"}
            with _client(os.getpid()).stream("GET", self.url, headers=headers) as answer:
                if answer.status_code == 416 and self.size <= 0:  # an empty file has no first byte
                    self.size = 0
                    return b""
                self._check(answer, begin)
                if answer.status_code != 206:
                    return self._copied(answer, begin, end)
                return self._body(answer)
        except httpx2.HTTPError as error:
            raise Interrupted(f"{urlsplit(self.url).netloc}: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Remove the temporary copy, if any; connections are shared by the process."""
        if self._copy is not None:
            self._copy.close()

    def _body(self, answer: httpx2.Response) -> bytes:
        """The body of an answer, as far as it came: the rest is asked for next. Raises HTTPError without a byte."""
        chunks: list[bytes] = []
        try:
            for chunk in answer.iter_raw():
                chunks.append(chunk)  # what came before an error is used
        except httpx2.HTTPError:
            if not any(chunks):
                raise
        return b"".join(chunks)

    def _copied(self, answer: httpx2.Response, begin: int, end: int) -> bytes:
        with ExitStack() as until_complete:
            copy = until_complete.enter_context(tempfile.TemporaryFile())
            for chunk in answer.iter_raw():
                copy.write(chunk)
            size, length = copy.tell(), answer.headers.get("Content-Length") or str(self.size)
            if length.isdigit() and size < int(length):
                raise Interrupted(f"{self.url} ended after {size} of {length} bytes")
            if self.size not in (-1, size):  # without Content-Length, ``_check`` did not see the size
                raise FetchError(f"changed since it was listed: {size} bytes; expected {self.size} bytes")
            until_complete.pop_all()
        self.size, self._copy = size, copy
        return self.fetch(begin, end)

    def _check(self, answer: httpx2.Response, begin: int) -> None:
        """Raise Interrupted or FetchError for an error status, FetchError if the file is not the listed one or a range
        does not start at byte ``begin``."""
        status = answer.status_code
        if status in (408, 429) or status >= 500:
            raise Interrupted(f"{urlsplit(self.url).netloc} answered {status}", asked_wait_s(answer.headers))
        if status in (401, 403):
            raise FetchError(f"{urlsplit(self.url).netloc} does not let you read it ({status})")
        if status not in (200, 206):
            raise FetchError(f"not there ({status}): its owners removed or renamed it")
        sent = re.search(r"(\d+)-\S*/(\d+)$", answer.headers.get("Content-Range", ""))
        if sent is None and status == 206:
            raise FetchError(f"{urlsplit(self.url).netloc} sends ranges and does not tell the size of the file")
        if sent and status == 206 and int(sent[1]) != begin:
            raise FetchError(
                f"{urlsplit(self.url).netloc} sent bytes from {sent[1]} on; asked for bytes from {begin} on"
            )
        size = int(sent[2]) if sent else int(answer.headers.get("Content-Length") or -1)
        version = answer.headers.get("ETag", "").removeprefix("W/").strip('"')
        if (self.size >= 0 and size >= 0 and size != self.size) or (self.version and version not in ("", self.version)):
            raise FetchError(
                f"changed since it was listed: {size} bytes, version {version or 'unknown'}; expected {self.size} "
                f"bytes, version {self.version or 'unknown'}"
            )
        self.size, self.version = (size if self.size < 0 else self.size), self.version or version


def asked_wait_s(headers: Mapping[str, str]) -> float:
    """Seconds to wait by response headers: Retry-After, else the reset time of RateLimit; 0 without them."""
    asked = headers.get("Retry-After", "")
    reset = re.search(r"\bt=(\d+)", headers.get("RateLimit", ""))
    return float(asked) if asked.isdigit() else float(reset[1]) if reset else 0.0
