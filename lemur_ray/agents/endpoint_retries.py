"""Asking an endpoint until it answers: one budget of time, growing pauses, and no more requests at once than it bears.

A failed request is asked again after a growing, jittered pause, or after exactly as long as the endpoint asked for,
until ``patience_s`` have passed since the request was first sent; then PolicyUnreachable. Time spent waiting for a
place (``agents.throttle``) does not count, nor for any deadline of the call (``outside.waiting``), and a pause that the
endpoint asked for does not while it answers others, however long it is.

| the end of the run (EndpointRefused) | |
|---|---|
| nothing listens at the address, and nobody was ever answered | at once |
| a pause is asked for that is longer than the patience, nobody was ever answered, and nobody may still be | at once |
| the same, and nobody at all was answered for as long as the patience | then |
| nobody at all was answered for as long, and the endpoint gives no sign of life | then |

Knows no protocol: what is sent is a function, and what may be asked again is what it raises ``Again`` for.
"""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from lemur_ray.agents.external_calls import excluded_wait
from lemur_ray.agents.messages import ChatReply, ContextOverflow, EndpointRefused, PolicyUnreachable
from lemur_ray.agents.throttle import EndpointSilent, Pressure, Throttle, Verdict

if TYPE_CHECKING:
    from lemur_ray.agents.endpoint import RequestSlots

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
LOOK_S = (0.5, 5.0)
"""How often it is looked whether others are served: no sooner, no later."""
BETWEEN_CLOCKS_S = 0.1
"""By which silence may seem shorter than it was: it is measured elsewhere, and a moment later."""
LATER = "what was finished is kept: run the same command again once it answers"


class RetryableError(Exception):
    """This request failed, another one may not."""

    def __init__(
        self, message: str, after_s: float | None = None, *, refused: bool = False, gone: bool = False
    ) -> None:
        """``after_s``: the pause that the endpoint asked for, in seconds. ``refused``: the endpoint has too much to do.
        ``gone``: nothing listens there."""
        super().__init__(message)
        self.after_s, self.refused, self.gone = after_s, refused, gone


class RetryPolicy:
    """One for all requests of a process to one endpoint, which is called ``where`` in errors. Safe between threads."""

    def __init__(
        self,
        where: str,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        *,
        places: RequestSlots | None = None,
        is_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """``places``: shared with other processes, or None. ``is_alive``: asked only before the run is ended."""
        self._where, self._patience_s = where, patience_s
        self._clock, self._sleep = clock, sleep
        self._places: RequestSlots = places or Throttle(clock)
        self._is_alive = is_alive

    def ask(self, send: Callable[[float], ChatReply], seed: int) -> ChatReply:
        """What ``send(seconds left)`` returns in the end. ``seed``: of the pauses.

        Raises PolicyUnreachable, EndpointRefused, and whatever else ``send`` raises but Again.
        """
        began = self._clock()
        give_up_at = began + self._patience_s
        jitter = random.Random(seed)
        tried = 0
        while True:
            tried += 1
            try:
                with excluded_wait():
                    give_up_at += self._places.enter(self._patience_s, again=tried > 1)
            except EndpointSilent as error:
                raise self._given_up(f"{error} ({tried - 1} requests of this turn)", began) from error
            sent_at = self._clock()
            verdict: Verdict = "failed"
            try:
                reply = send(give_up_at - sent_at)
                verdict = "answered"
                return replace(reply, waited_s=sent_at - began)
            except ContextOverflow:
                verdict = "answered"
                raise
            except RetryableError as again:
                failed = again
                verdict = "refused" if again.refused else "failed"
            finally:
                self._places.leave(verdict, sent_at)
            pause_s = failed.after_s
            if pause_s is None:
                pause_s = min(FIRST_PAUSE_S * 2 ** (tried - 1), LONGEST_PAUSE_S) * jitter.uniform(0.5, 1.0)
            elif pause_s > self._patience_s:
                give_up_at += self._outwait(pause_s, f"{self._where}: {failed} ({tried} requests, next pause")
                continue
            elif self._places.silence().seconds < self._patience_s:
                give_up_at += pause_s
            if failed.gone and not self.ever_answered():
                raise EndpointRefused(f"nothing answers at {self._where}: {failed}; is the server running?")
            if self._clock() + pause_s >= give_up_at:
                spent = f"{tried} requests in {self._patience_s:g} s of patience"
                raise self._given_up(f"{failed} ({spent}, next pause {pause_s:.1f} s)", began)
            with excluded_wait() if failed.after_s is not None else nullcontext():
                self._sleep(pause_s)

    def _outwait(self, pause_s: float, said: str) -> float:
        """A pause that is longer than the patience, as long as others are served; returns the seconds that it took.

        Raises EndpointRefused once nobody is.
        """
        began = self._clock()
        with excluded_wait():
            while (left_s := pause_s - (self._clock() - began)) > 0:
                silence = self._places.silence()
                nobody = not silence.ever and not silence.under_way
                if nobody or silence.seconds >= self._patience_s:
                    raise EndpointRefused(
                        f"{said} {pause_s:.1f} s: longer than --patience-s {self._patience_s:g}, and nobody is "
                        "served); what was finished is kept: run the same command again later"
                    )
                soonest_s, latest_s = LOOK_S
                self._sleep(min(left_s, latest_s, max(soonest_s, self._patience_s - silence.seconds)))
        return self._clock() - began

    def pressure(self) -> Pressure:
        """How the endpoint holds this process back."""
        return self._places.pressure()

    def ever_answered(self) -> bool:
        """Whether anybody who shares the places was ever answered."""
        return self._places.silence().ever

    def _given_up(self, why: str, began: float) -> PolicyUnreachable:
        """``began``: when the request was first sent, or waited for its place."""
        silent_s = self._places.silence().seconds
        if silent_s + BETWEEN_CLOCKS_S >= min(self._patience_s, self._clock() - began) and not self._is_alive():
            return EndpointRefused(f"{self._where} answered nobody for {silent_s:.0f} s: {why}; {LATER}")
        return PolicyUnreachable(f"{self._where}: {why}")


def requested_pause_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that an answer's headers ask to wait: a number, milliseconds, or an HTTP date. ``now``: wall clock.

    None where they ask for none, in a form that nobody knows, or for nothing (0, a date that is past by a clock that
    goes otherwise): asking at once, again and again, would be a flood, and a pause of our own is as good.
    """
    asked = (_milliseconds(headers.get("retry-after-ms")), _seconds(headers.get("retry-after"), now))
    return next((seconds for seconds in asked if seconds is not None and 0 < seconds < math.inf), None)


def _milliseconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text) / 1000
    except ValueError:
        return None


def _seconds(text: str | None, now: float) -> float | None:
    try:
        if text is None:
            return None
        if (text := text.strip()).replace(".", "", 1).isdigit():
            return float(text)
        return email.utils.parsedate_to_datetime(text).timestamp() - now
    except (ValueError, OverflowError):
        return None
