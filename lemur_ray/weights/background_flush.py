"""Data on its way to the disk while more is being made, so that the flush at the end finds little left to wait for.

The kernel keeps what is written in memory until somebody asks for it or a tenth of the memory is full. Knows nothing of
files: what is to be flushed is the caller's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

EVERY_BYTES = 2**26
"""Written between two flushes."""


class Flusher:
    """Calls ``flush`` in a thread of its own every ``EVERY_BYTES``, one call at a time."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush, self._lock, self._waiting_bytes = flush, threading.Lock(), 0
        self._pool = ThreadPoolExecutor(1, "flush")
        self._running: Future[None] | None = None

    def wrote(self, size_bytes: int) -> None:
        """Count what has been written. Raises the OSError of an earlier flush."""
        with self._lock:
            self._waiting_bytes += size_bytes
            if self._waiting_bytes < EVERY_BYTES or (self._running is not None and not self._running.done()):
                return
            if self._running is not None:
                self._running.result()
            self._waiting_bytes = 0
            self._running = self._pool.submit(self._flush)

    def close(self) -> None:
        """Flush what is left. Raises OSError where this or an earlier flush failed: the kernel tells it only once."""
        self._pool.shutdown()
        if self._running is not None:
            self._running.result()
        self._flush()
