"""Flush written data to disk in a background thread, so that the final flush has little left to do.

The kernel otherwise keeps written data in memory until a flush or until a tenth of the memory is dirty."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

EVERY_BYTES = 2**26
"""Bytes written between two flushes."""


class Flusher:
    """Calls ``flush`` in a thread after every ``EVERY_BYTES`` bytes that the caller reports, one call at a time."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush, self._lock, self._waiting_bytes = flush, threading.Lock(), 0
        self._pool = ThreadPoolExecutor(1, "flush")
        self._running: Future[None] | None = None

    def wrote(self, size_bytes: int) -> None:
        """Count ``size_bytes`` as written and start a flush if it is due. Raises the OSError of an earlier flush."""
        with self._lock:
            self._waiting_bytes += size_bytes
            if self._waiting_bytes < EVERY_BYTES or (self._running is not None and not self._running.done()):
                return
            if self._running is not None:
                self._running.result()
            self._waiting_bytes = 0
            self._running = self._pool.submit(self._flush)

    def close(self) -> None:
        """Wait for a running flush and flush once more. Raises OSError if this or an earlier flush failed."""
        self._pool.shutdown()
        if self._running is not None:
            self._running.result()
        self._flush()
