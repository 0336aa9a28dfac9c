"""A file of lines to which one process appends: written at once on a disk, in the background to a bucket.

An upload sends only what was not sent before (``conditional_writes.append_if``) and happens at most every few seconds,
because services allow one write a second to an object. A writer that has been replaced by another one writes nothing:
a bucket refuses it by the version of the object, on a disk ``check`` is called before every write."""

import contextlib
import os
import threading
from collections.abc import Callable

from lemur_ray.storage.conditional_writes import VersionConflict, append_if, read_version, remove_unjoined, write_if
from lemur_ray.storage.file_system import file_system, is_bucket

UPLOAD_EVERY_S = 10.0
"""Minimum seconds between two uploads to a bucket, except those that ``flush`` waits for."""


class AppendFile:
    """A file of lines (path or URL), opened for appending; opening removes an incomplete last line. ``content``: its
    bytes at that time. Nothing is certain to be stored in a bucket before ``flush`` or ``close``."""

    def __init__(self, url: str, check: Callable[[], None] = lambda: None) -> None:
        """url: path or URL. check: raises if this process may not write any more. Raises OSError."""
        self.url, self._check = url, check
        self._bucket = is_bucket(url)
        self._waiting = b""
        self._failure: Exception | None = None
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.content = self._open()
        """Bytes of the file when it was opened."""
        self.size = len(self.content)
        """Bytes stored in the bucket; on a disk, the size when the file was opened."""

    def _open(self) -> bytes:
        """Read the file and cut off a torn last line; in a bucket, a new version makes earlier writers conflict."""
        self._version: str | None = None
        while (stored := read_version(self.url)) is not None:
            content = stored[0][: stored[0].rfind(b"\n") + 1]
            if not self._bucket:
                if len(content) < len(stored[0]):
                    os.truncate(file_system(self.url)[1], len(content))
                return content
            self._check()
            try:
                if len(content) < len(stored[0]):
                    self._version = write_if(self.url, content, stored[1])
                else:
                    self._version = append_if(self.url, b"", stored[1], len(content))
            except VersionConflict:  # another process has written meanwhile: read again
                continue
            remove_unjoined(self.url)
            return content
        return b""

    def write(self, data: bytes) -> None:
        """Append whole lines: written and synced at once on a disk, uploaded in the background to a bucket. Raises what
        ``check`` raises, for a bucket at the latest at a write after the next upload; OSError."""
        if not self._bucket:
            self._check()
            with open(file_system(self.url)[1], "ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            return
        self._raise_failure()
        with self._lock:
            self._waiting += data
        if self._thread is None:
            self._thread = threading.Thread(target=self._upload, name=f"append-{self.url[-40:]}", daemon=True)
            self._thread.start()

    def append(self, data: bytes) -> None:
        """Append any bytes to a file in a bucket, stored on return. Raises OSError, and what ``check`` raises."""
        with self._lock:
            self._waiting += data
        self.flush()

    def flush(self) -> None:
        """Wait until everything written before this call is stored. Raises what ``check`` raises, OSError."""
        self._raise_failure()
        self._send()

    def close(self) -> None:
        """Store everything and end the uploads. Raises OSError, and what ``check`` raises."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _upload(self) -> None:
        while not self._closed.wait(UPLOAD_EVERY_S):
            try:
                self._send()
            except OSError:
                continue  # nothing is lost: the next upload or ``flush`` sends it
            except Exception as error:
                self._failure = error
                return

    def _send(self) -> None:
        with self._sending:
            data = self._waiting  # what is written meanwhile waits for the next upload
            while data:
                self._check()
                try:
                    self._version = append_if(self.url, data, self._version, self.size)
                except VersionConflict:
                    self._check()
                    self._restore()
                    continue
                self.size += len(data)
                with self._lock:
                    self._waiting = self._waiting[len(data) :]
                return

    def _restore(self) -> None:
        """Adopt the object's current version and cut off bytes that an earlier writer has appended meanwhile."""
        stored = read_version(self.url)
        self._version = stored[1] if stored else None
        if stored is not None and len(stored[0]) > self.size:
            with contextlib.suppress(VersionConflict):
                self._version = write_if(self.url, stored[0][: self.size], stored[1])
