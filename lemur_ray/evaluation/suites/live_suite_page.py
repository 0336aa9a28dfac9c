"""The page of a suite while one of its benchmarks is played, written anew as episodes come.

By a thread beside the run, and never for more than a tenth of the time; that it fails is said once and ends nothing.
Knows nothing of what is on the page.
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
    """While the block runs, ``write`` is called after each ``every_s`` seconds in which a ledger has grown.

    At the end of the block nothing of this is left running.
    """
    over = threading.Event()
    thread = threading.Thread(target=_rewrite, args=(write, ledgers, _bytes(ledgers), every_s, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _rewrite(
    write: Callable[[], object], ledgers: Sequence[Path], seen: int, every_s: float, over: threading.Event
) -> None:
    """``seen``: bytes of the ledgers when the page was written last."""
    pause, complained = every_s, False
    while not over.wait(pause):
        if (now := _bytes(ledgers)) == seen:
            continue
        began = time.monotonic()
        try:
            write()
            seen = now
        except Exception as error:  # whatever it is, the run goes on, and its end writes the page again
            if not complained:
                complained = True
                said = f"{type(error).__name__}: {error}"
                print(f"the suite's page cannot be written while it goes on: {said}", file=sys.stderr, flush=True)
        pause = max(every_s, (time.monotonic() - began) * (1 / SHARE - 1))


def _bytes(ledgers: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in ledgers if path.is_file())
