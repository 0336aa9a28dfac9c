"""Asking an endpoint until it answers: one budget of time, growing pauses, and no more requests at once than it bears.

A failed request is asked again after a growing, jittered pause, or after exactly as long as the endpoint asked for,
until ``patience_s`` have passed since the request was first sent; then PolicyUnreachable. Time spent waiting for a
place (``agents.throttle``) does not count. Knows no protocol: what is sent is a function, and what may be asked again
is what it raises ``Again`` for.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from lemur_ray.agents.messages import ChatReply, ContextOverflow, PolicyUnreachable
from lemur_ray.agents.throttle import NobodyAnswered, Pressure, Throttle, Verdict

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0


class Again(Exception):
    """This request failed, another one may not. ``refused``: the endpoint has too much to do."""

    def __init__(self, message: str, after_s: float | None = None, *, refused: bool = False) -> None:
        """``after_s``: the pause that the endpoint asked for, in seconds."""
        super().__init__(message)
        self.after_s, self.refused = after_s, refused


class Persistence:
    """One for all requests of a process to one endpoint, which is called ``where`` in errors. Safe between threads."""

    def __init__(
        self,
        where: str,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._where, self._patience_s = where, patience_s
        self._clock, self._sleep = clock, sleep
        self._throttle = Throttle(clock)

    def ask(self, send: Callable[[float], ChatReply], seed: int) -> ChatReply:
        """What ``send(seconds left)`` returns in the end. ``seed``: of the pauses.

        Raises PolicyUnreachable, and whatever else ``send`` raises but Again.
        """
        give_up_at = self._clock() + self._patience_s
        jitter = random.Random(seed)
        tried = 0
        while True:
            tried += 1
            try:
                give_up_at += self._throttle.enter(self._patience_s, again=tried > 1)
            except NobodyAnswered as error:
                raise PolicyUnreachable(f"{self._where}: {error} ({tried - 1} requests of this turn)") from error
            sent_at = self._clock()
            verdict: Verdict = "failed"
            try:
                reply = send(give_up_at - sent_at)
                verdict = "answered"
                return reply
            except ContextOverflow:
                verdict = "answered"
                raise
            except Again as again:
                refusal, pause_s = str(again), again.after_s
                verdict = "refused" if again.refused else "failed"
            finally:
                self._throttle.leave(verdict, sent_at)
            if pause_s is None:
                pause_s = min(FIRST_PAUSE_S * 2 ** (tried - 1), LONGEST_PAUSE_S) * jitter.uniform(0.5, 1.0)
            if self._clock() + pause_s >= give_up_at:
                spent = f"{tried} requests in {self._patience_s:g} s of patience"
                raise PolicyUnreachable(f"{self._where}: {refusal} ({spent}, next pause {pause_s:.1f} s)")
            self._sleep(pause_s)

    def pressure(self) -> Pressure:
        """How the endpoint holds this process back."""
        return self._throttle.pressure()
