"""A periodic background call during the main work, for example to renew a lease or to upload results.

If the call fails, the main thread is interrupted as by Ctrl-C. Knows nothing of leases.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def run_heartbeat(beat: Callable[[], None], every_s: float) -> Iterator[list[Exception]]:
    """Call ``beat`` in a thread every ``every_s`` seconds while the block runs; yields the list of its errors.

    The first error stops the calls and interrupts the main thread. It is raised when the block ends by the
    interruption; a block that completes nevertheless is not disturbed.
    """
    ended, raised = threading.Event(), list[Exception]()
    main = threading.main_thread().ident or 0

    def run() -> None:
        while not ended.wait(every_s):
            try:
                beat()
            except Exception as error:
                raised.append(error)
                signal.pthread_kill(main, signal.SIGINT)
                return

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        with _interruptible(raised):
            yield raised
    except BaseException:  # the interrupted code may turn it into another error
        if not raised:
            raise
        raise raised[0] from None
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _interruptible(raised: list[Exception]) -> Iterator[None]:
    """Let the interruption reach a process that ignores SIGINT, as background processes of a script do."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        if raised:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
