"""A driver whose head is gone says so and ends, instead of waiting for minutes or dying without a word.

Ray's own patience with a head is a minute, after which it ends the process as it stands; where the head's host was lost
it begins to count when a connection breaks, which may be minutes later. Knows nothing of Ray: whoever connects says how
to ask.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

SILENT_S = 45.0
"""How long a head may be silent: less than Ray's minute, more than a busy one is."""
EVERY_S = 1.0
"""Seconds between two questions. A host that its head has forgotten lives for some seconds more."""


class HeadWatch:
    """Asks in a thread of its own until ``end``."""

    def __init__(
        self,
        address: str,
        knows_us: Callable[[], bool],
        *,
        silent_s: float = SILENT_S,
        every_s: float = EVERY_S,
        leave: Callable[[str], object] | None = None,
    ) -> None:
        """``knows_us``: whether the head counts this host among its own; raises where it does not answer, in seconds.
        ``leave``: told why, once; by default it ends the process."""
        self._address, self._knows_us = address, knows_us
        self._silent_s, self._every_s, self._leave = silent_s, every_s, leave or _leave
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="head-watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Before the process ends by itself: waits for an answer that is due."""
        self._ended.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        heard = time.monotonic()
        while not self._ended.is_set():
            found = ""
            try:
                if self._knows_us():
                    heard = time.monotonic()
                else:
                    found = "does not know this host any more: it was started anew, or had lost it"
            except Exception:  # whatever it is that Ray makes of it
                if (silent_s := time.monotonic() - heard) > self._silent_s:
                    found = f"has not answered for {silent_s:.0f} s"
            if found and not self._ended.is_set():
                self._leave(self._sentence(found))
                return
            self._ended.wait(self._every_s)

    def _sentence(self, found: str) -> str:
        return (
            f"the head at {self._address} {found}. This job ends; run the same command again once a head is there: it "
            "goes on from what is stored (a training run from its newest checkpoint)"
        )


def _leave(why: str) -> NoReturn:
    """At once: whatever the process would give back on its way out asks the head first, and waits for it."""
    print(why, file=sys.stderr, flush=True)
    os._exit(1)
