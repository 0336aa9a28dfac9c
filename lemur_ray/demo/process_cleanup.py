"""The end of a Ray head: of every process that it or its jobs started, whatever name Ray gave it.

Knows nothing of jobs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_head(process: subprocess.Popen[bytes], token: str) -> None:
    """End the head, then by id what is left of its session and whatever carries its token (drivers, workers)."""
    with _undisturbed():
        for sig, patience_s in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(sig)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
                break
        for pid in {*_carrying(token), *_in_session(process.pid)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C would leave behind what the first one is just ending. Signals belong to the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _in_session(leader: int) -> Sequence[int]:
    """Processes of the session that the head led (Linux): its agents' names overwrite their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            session = path.read_text().rpartition(")")[2].split()[3]
            if int(session) == leader:
                found.append(int(path.parent.name))
    return found


def _carrying(token: str) -> Sequence[int]:
    """Processes, this one left out, that inherited the head's token (Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if token.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found
