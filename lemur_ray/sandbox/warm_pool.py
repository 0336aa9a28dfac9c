"""A pool of idle sandboxes: a verified reset takes milliseconds, opening a sandbox a tenth of a second or more.

A returned sandbox is reset and kept; one whose reset cannot be verified is closed and counted (``quarantined``). When
the last idle one is taken, another is opened in the background. A forked child starts with an empty pool. The backend
ends open sandboxes with the process."""

import atexit
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from lemur_ray.sandbox.backends.driven_sandbox import DrivenSandbox
from lemur_ray.sandbox.sandbox import Sandbox, SandboxError, SandboxQuarantined, SandboxSpec, open_sandbox

MAX_IDLE = 4
"""Default maximum of idle sandboxes in a pool."""

_all: weakref.WeakSet["WarmPool"] = weakref.WeakSet()


class WarmPool:
    """A thread-safe pool of idle sandboxes of one specification, at most ``kept`` (at least 1, else ValueError).
    ``quarantined``: number of sandboxes whose reset failed its check. ``backend``: "bwrap" or "docker"."""

    def __init__(self, spec: SandboxSpec, backend: str = "bwrap", kept: int = MAX_IDLE) -> None:
        if kept < 1:
            raise ValueError(f"number of idle sandboxes {kept}: expected at least 1")
        self._spec, self._backend, self._kept = spec, backend, kept
        self._lock = threading.Lock()
        self._idle: list[Sandbox] = []
        self._opening: threading.Thread | None = None
        self._closed = False
        self.quarantined = 0
        _all.add(self)

    def take(self) -> Sandbox:
        """Return an idle sandbox, or open one; the caller gives it back or closes it. Raises SandboxUnavailable if none
        can be opened."""
        with self._lock:
            taken = self._idle.pop() if self._idle else None
            if not self._idle and self._opening is None and not self._closed:
                self._opening = threading.Thread(target=self._open_one, name="warm-sandbox", daemon=True)
                self._opening.start()
        return taken or open_sandbox(self._spec, self._backend)

    def give_back(self, sandbox: Sandbox) -> None:
        """Reset a sandbox and keep it for the next ``take``; close it if the reset fails, the pool is full or closed.
        Never raises SandboxError."""
        with self._lock:
            wanted = not self._closed and len(self._idle) < self._kept
        if wanted:
            try:
                sandbox.reset()
            except SandboxError as error:
                wanted = False
                with self._lock:
                    self.quarantined += isinstance(error, SandboxQuarantined)
        self._keep(sandbox, wanted)

    @contextmanager
    def one(self) -> Iterator[Sandbox]:
        """Context manager that takes a sandbox and gives it back, also after an exception. Raises SandboxUnavailable if
        none can be opened."""
        sandbox = self.take()
        try:
            yield sandbox
        finally:
            self.give_back(sandbox)

    def close(self) -> None:
        """Close the idle sandboxes; taken ones are closed when given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            opening = self._opening
        if opening is not None:
            opening.join()
        for sandbox in idle:
            sandbox.close()

    def __enter__(self) -> "WarmPool":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def forget(self) -> None:
        """In a forked child: drop the parent's sandboxes without ending them. Called at every fork."""
        self._lock, self._opening = threading.Lock(), None
        idle, self._idle = self._idle, []
        for sandbox in idle:
            if isinstance(sandbox, DrivenSandbox):
                sandbox.abandon()

    def _open_one(self) -> None:
        try:
            sandbox = open_sandbox(self._spec, self._backend)
        except SandboxError:
            return  # the next ``take`` opens one itself and raises the error
        finally:
            self._opening = None
        self._keep(sandbox, True)

    def _keep(self, sandbox: Sandbox, wanted: bool) -> None:
        with self._lock:
            if wanted and not self._closed and len(self._idle) < self._kept:
                self._idle.append(sandbox)
                return
        sandbox.close()


def _forget_all() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for pool in list(_all):
        pool.forget()


os.register_at_fork(after_in_child=_forget_all)

_shared: dict[tuple[str, str], WarmPool] = {}
_shared_lock = threading.Lock()


def shared_pool(spec: SandboxSpec, backend: str = "bwrap") -> WarmPool:
    """This process's pool for ``spec`` and ``backend``, created at the first call, closed at the end of the process."""
    key = (repr(spec), backend)
    with _shared_lock:
        if key not in _shared:
            _shared[key] = WarmPool(spec, backend)
            atexit.register(_shared[key].close)
        return _shared[key]
