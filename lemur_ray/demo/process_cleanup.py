"""Ends a Ray head and every process that it or its jobs started. Knows nothing of jobs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_head(process: subprocess.Popen[bytes], token: str) -> None:
    """End the head, then kill what is left of its session and every process with its token (drivers, workers)."""
    with _signals_ignored():
        for sig, patience_s in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(sig)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
                break
        for pid in _left_over(process.pid, token):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore further signals, since a second Ctrl-C would interrupt the cleanup. No effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _left_over(leader: int, token: str) -> list[int]:
    """Other processes of the head's session, or with its token in their environment (Linux).

    Some agents' title overwrites their environment, and drivers and workers have sessions of their own.
    """
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            session = (folder / "stat").read_text().rpartition(")")[2].split()[3]
            if int(session) == leader or token.encode() in (folder / "environ").read_bytes():
                pids.append(int(folder.name))
    return [pid for pid in pids if pid != os.getpid()]
