"""Something that goes on beside the work of a process, every few seconds: a lease is renewed, what has ended is stored.

Where it cannot go on the work ends, wherever it is, as Ctrl-C would end it. Knows nothing of leases.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def run_heartbeat(beat: Callable[[], None], every_s: float) -> Iterator[list[Exception]]:
    """Call ``beat`` in a thread every so many seconds while the block runs; gives the list of what it raised.

    Whatever it raises is its last word: the main thread is interrupted, and once the block has ended by that, it is
    raised from here. A block that ends well all the same is left alone.
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

    thread = threading.Thread(target=run, name="beats", daemon=True)
    thread.start()
    try:
        with _interruptible(raised):
            yield raised
    except BaseException:  # what the interruption becomes on its way is the business of what was interrupted
        if not raised:
            raise
        raise raised[0] from None
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _interruptible(raised: list[Exception]) -> Iterator[None]:
    """A process that ignores SIGINT, as one in the background of a script does, hears that it is to end."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return

    def hear(number: int, frame: Any) -> None:
        if raised:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
