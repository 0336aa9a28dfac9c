"""Periodic calls of a function in a thread during the main work, for example to renew a lease or to upload results.

If a call fails, the main thread is interrupted as by Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def run_heartbeat(beat: Callable[[], None], every_s: float) -> Iterator[list[Exception]]:
    """Context manager: call ``beat`` in a thread every ``every_s`` seconds while the block runs; yields a list that
    collects its error. An error stops the calls, interrupts the main thread, and is raised in place of any exception
    that ends the block; a block that completes nevertheless is not disturbed."""
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
        try:
            thread.join()
        except KeyboardInterrupt:  # by the last call, which failed after the block had ended
            if not raised:
                raise


@contextlib.contextmanager
def _interruptible(raised: list[Exception]) -> Iterator[None]:
    """Replace an ignored SIGINT (background processes of a script) so that an error in ``raised`` can interrupt."""
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
