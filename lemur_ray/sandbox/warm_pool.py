"""Warm sandboxes: a verified reset takes milliseconds, where opening a sandbox takes a tenth of a second or more.

A sandbox that comes back is reset and kept; one whose reset does not prove is closed and counted (``quarantined``),
never handed out again. A fork's child has none of its parent's. When the last idle one is taken, another one is opened
in the background. Knows nothing of what runs in them; those left at the end of the process end with it (the backend
sees to that).
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from lemur_ray.sandbox.backends.driven_sandbox import DrivenSandbox
from lemur_ray.sandbox.sandbox import Sandbox, SandboxError, SandboxQuarantined, SandboxSpec, open_sandbox

KEPT = 4
"""Idle sandboxes of one kind that a process keeps."""


_all: weakref.WeakSet[WarmPool] = weakref.WeakSet()


class WarmPool:
    """Sandboxes of one specification. Safe to share between threads."""

    def __init__(self, spec: SandboxSpec, backend: str = "bwrap", kept: int = KEPT) -> None:
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
        """A sandbox as it was at its beginning, to be given back or closed. Raises SandboxUnavailable."""
        with self._lock:
            taken = self._idle.pop() if self._idle else None
            if not self._idle and self._opening is None and not self._closed:
                self._opening = threading.Thread(target=self._open_one, name="warm-sandbox", daemon=True)
                self._opening.start()
        return taken or open_sandbox(self._spec, self._backend)

    def give_back(self, sandbox: Sandbox) -> None:
        """Reset and keep it, or close it where the reset does not prove or enough are kept."""
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
        """A sandbox for a while."""
        sandbox = self.take()
        try:
            yield sandbox
        finally:
            self.give_back(sandbox)

    def close(self) -> None:
        """Close those that are idle; those that were taken are the taker's."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            opening = self._opening
        if opening is not None:
            opening.join()
        for sandbox in idle:
            sandbox.close()

    def __enter__(self) -> WarmPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def forget(self) -> None:
        """In the child of a fork: the idle ones are the parent's, and its threads do not run here."""
        self._lock, self._opening = threading.Lock(), None
        idle, self._idle = self._idle, []
        for sandbox in idle:
            if isinstance(sandbox, DrivenSandbox):
                sandbox.abandon()

    def _open_one(self) -> None:
        try:
            sandbox = open_sandbox(self._spec, self._backend)
        except SandboxError:
            return  # whoever takes next opens one himself and hears why that fails
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
    """This process's pool of a specification, made at the first call and closed at the end of the process."""
    key = (repr(spec), backend)
    with _shared_lock:
        if key not in _shared:
            _shared[key] = WarmPool(spec, backend)
            atexit.register(_shared[key].close)
        return _shared[key]
