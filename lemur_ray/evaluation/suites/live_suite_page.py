"""Live page of a suite: a background thread rewrites it as episodes of the current benchmark end.

Rewriting takes at most a tenth of the time. A failure is reported once and does not end the run.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lemur_ray.report.pages.live_page import EVERY_S, SHARE


@contextlib.contextmanager
def live_suite(write: Callable[[], object], ledgers: Sequence[Path], every_s: float = EVERY_S) -> Iterator[None]:
    """Context manager: a thread calls ``write`` after each ``every_s`` seconds in which a ledger has grown."""
    over = threading.Event()

    def rewrite(last_bytes: int) -> None:
        pause, reported = every_s, False
        while not over.wait(pause):
            if (now := _bytes(ledgers)) == last_bytes:
                continue
            began = time.monotonic()
            try:
                write()
                last_bytes = now
            except Exception as error:  # whatever it is, the run goes on, and its end writes the page again
                if not reported:
                    reported = True
                    reason = f"{type(error).__name__}: {error}"
                    print(f"the suite's page cannot be written while it goes on: {reason}", file=sys.stderr, flush=True)
            pause = max(every_s, (time.monotonic() - began) * (1 / SHARE - 1))

    thread = threading.Thread(target=rewrite, args=(_bytes(ledgers),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _bytes(ledgers: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in ledgers if path.is_file())
