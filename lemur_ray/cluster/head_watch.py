"""A thread that watches the head of the Ray cluster; if the head is lost, it prints the reason and ends the process.

Ray itself waits for a minute before it ends the process without a message; if the head's host is lost, that minute
begins only when a connection breaks, which may be minutes later. The caller supplies the query of the head."""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from lemur_ray.host.exit_codes import ExitCode

SILENCE_LIMIT_S = 45.0
"""Seconds for which a head may not answer: less than Ray's minute, more than a busy head needs."""
INTERVAL_S = 1.0
"""Seconds between two queries: short, because Ray soon ends a host that its head no longer lists."""


class HeadWatch:
    """Queries the head of the Ray cluster from a thread until ``stop``. ``on_loss`` is called once if the head is lost:
    it answers nothing for ``silence_limit_s`` seconds, or no longer knows this host. ``address``: of the head;
    ``interval_s``: seconds between queries."""

    def __init__(
        self,
        address: str,
        is_member: Callable[[], bool],
        *,
        silence_limit_s: float = SILENCE_LIMIT_S,
        interval_s: float = INTERVAL_S,
        on_loss: Callable[[str], object] | None = None,
    ) -> None:
        """``is_member``: whether the head lists this host as its own; must raise, within seconds, if the head does not
        answer. ``on_loss``: called once with the reason; by default it prints the reason and ends the process."""
        self._address, self._is_member = address, is_member
        self._silence_limit_s, self._interval_s, self._on_loss = silence_limit_s, interval_s, on_loss or _exit
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="head-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Waits up to 10 s for a query in flight."""
        self._stopped.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        last_answer = time.monotonic()
        while not self._stopped.is_set():
            reason = ""
            try:
                if self._is_member():
                    last_answer = time.monotonic()
                else:
                    reason = "does not know this host any more: it was started anew, or had lost it"
            except Exception:  # Ray raises many types here, and each means that the head did not answer
                if (silence_s := time.monotonic() - last_answer) > self._silence_limit_s:
                    reason = f"has not answered for {silence_s:.0f} s"
            if reason and not self._stopped.is_set():
                self._on_loss(
                    f"the head at {self._address} {reason}. This job ends; run the same command again once a head is "
                    "there: it goes on from what is stored (a training run from its newest checkpoint)"
                )
                return
            self._stopped.wait(self._interval_s)


def _exit(reason: str) -> NoReturn:
    """Print the reason and end without exit handlers, which would wait for the head to release resources."""
    print(reason, file=sys.stderr, flush=True)
    os._exit(ExitCode.TRY_AGAIN)
