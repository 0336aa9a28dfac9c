"""Retries of failed requests to an endpoint: one time budget per reply, growing pauses, limited concurrency.

A failed request is sent again after a growing, jittered pause, or after exactly the pause that the endpoint demands,
until ``patience_s`` have passed since the first one; then PolicyUnreachable is raised. The wait for a request slot
(``agents.throttle``) is excluded, also from deadlines of the call (``external_calls.excluded_wait``), and so is a
pause that the endpoint demands while it answers others.

| the run ends (EndpointRefused) if | when |
|---|---|
| nothing listens at the address, and no request was ever answered | at once |
| the demanded pause is longer than the patience, no request was ever answered, and none is in flight | at once |
| the demanded pause is longer, and no request that shares the slots was answered for ``patience_s`` | then |
| no request that shares the slots was answered for as long, and the health probe fails | then |

A request is a function of the caller, which raises ``RetryableError`` if it may be repeated.

``ThinkingBudget`` repeats a request whose tokens ended in the model's reasoning, with more of them."""

import email.utils
import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace

from lemur_ray.agents.endpoint import RequestSlots
from lemur_ray.agents.external_calls import excluded_wait
from lemur_ray.agents.messages import ChatReply, ChatRequest, ContextOverflow, EndpointRefused, PolicyUnreachable, Usage
from lemur_ray.agents.throttle import EndpointSilent, Pressure, Throttle, Verdict

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
LOOK_S = (0.5, 5.0)
"""Bounds of the interval, in seconds, between checks during a long pause whether other requests are answered."""
BETWEEN_CLOCKS_S = 0.1
"""Tolerance in seconds when times without answers, by different clocks, are compared."""
LATER = "what was finished is kept: run the same command again once it answers"


DEFAULT_THINKING_TOKENS = 16_384
"""Tokens of reasoning beyond the reply's limit for a model that reasons: ample for published reasoning models on the
benchmarks here, and half of their usual context length."""
MIN_THINKING_TOKENS = 512
"""Smallest budget of reasoning that is tried when larger ones do not fit the context."""


class ThinkingBudget:
    """Keeps a model's reasoning out of its reply's token limit. With ``configured`` negative, the budget is 0 until a
    reply ended by length in its reasoning, or without any text; that request is then repeated once, with
    ``DEFAULT_THINKING_TOKENS`` more, as are all later ones if the repeated one shows reasoning (its text, or a count of
    its tokens). A budget that the context has no room for is halved, for that request alone. Text beyond the reply's
    limit is cut, as for a model without reasoning, unless a stop string ended it, or reasoning is shown without a
    count."""

    def __init__(self, configured: int) -> None:
        self._automatic, self._tokens = configured < 0, max(0, configured)

    def reply(self, ask: Callable[[ChatRequest], ChatReply], request: ChatRequest) -> ChatReply:
        """Send ``request`` by ``ask``, which sends a request once, with room for reasoning in its token limit, and
        return the reply; a second time if the reasoning used up the tokens. Raises what ``ask`` raises."""
        budget, may_repeat = self._tokens, self._automatic
        discarded: Usage | None = None
        while True:
            allowed = request.sampling.max_tokens + budget
            try:
                reply = ask(replace(request, sampling=replace(request.sampling, max_tokens=allowed)))
            except ContextOverflow:
                if not budget:
                    raise
                budget, may_repeat = (budget // 2 if budget >= 2 * MIN_THINKING_TOKENS else 0), False
                continue
            reasons = bool(reply.reasoning or reply.usage.reasoning_tokens)
            thinks = reasons or not reply.text.strip()
            if not budget and may_repeat and thinks and reply.finish_reason == "length":
                budget, may_repeat, discarded = DEFAULT_THINKING_TOKENS, False, reply.usage
                continue
            if discarded and reasons:
                self._tokens = DEFAULT_THINKING_TOKENS
            limited = _limited(reply, request.sampling.max_tokens) if budget else reply
            return replace(limited, usage=reply.usage.with_discarded(discarded)) if discarded else limited


def _limited(reply: ChatReply, limit: int) -> ChatReply:
    """The reply, its text cut in proportion if it has more than ``limit`` tokens, by the endpoint's counts. It stays
    whole if its tokens are not those of its text: a stop string cut it, or reasoning is not counted apart. Text with
    fewer characters than tokens comes after reasoning that the endpoint neither shows nor counts."""
    spoken = reply.usage.completion_tokens - reply.usage.reasoning_tokens
    uncounted = not reply.usage.reasoning_tokens and (reply.reasoning or len(reply.text) < spoken)
    if reply.stopped or uncounted or spoken <= limit:
        return reply
    text = reply.text[: len(reply.text) * limit // spoken]
    return replace(reply, text=text, finish_reason="length", token_ids=())


class RetryableError(Exception):
    """Raised by a request that failed and may succeed when repeated."""

    def __init__(
        self, message: str, after_s: float | None = None, *, refused: bool = False, gone: bool = False
    ) -> None:
        """``after_s``: pause that the endpoint demands, in seconds. ``refused``: the endpoint is overloaded. ``gone``:
        nothing listens at the address."""
        super().__init__(message)
        self.after_s, self.refused, self.gone = after_s, refused, gone


class EndpointRetryPolicy:
    """Repeats failed requests of this process to one endpoint and limits concurrent ones. ``where``: the endpoint's
    name in errors. Thread-safe."""

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
        """``patience_s``: seconds per reply. ``places``: request slots shared with other processes, or None.
        ``is_alive``: health probe of the endpoint; False ends the run."""
        self._where, self._patience_s = where, patience_s
        self._clock, self._sleep = clock, sleep
        self._places: RequestSlots = places or Throttle(clock)
        self._is_alive = is_alive

    def ask(self, send: Callable[[float], ChatReply], seed: int) -> ChatReply:
        """Call ``send(seconds left)`` until it returns a reply; while it raises RetryableError, it is called again
        after a growing pause. ``seed``: of the random part of the pauses. Raises PolicyUnreachable after ``patience_s``
        seconds, EndpointRefused if nothing listens at the address, or nothing answers a health probe either, and other
        errors of ``send``."""
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

    def _outwait(self, pause_s: float, failure: str) -> float:
        """Wait out a demanded pause longer than the patience; returns its seconds. Raises EndpointRefused (``failure``:
        its beginning) if no request was answered for ``patience_s``, or none ever was and none is in flight."""
        began = self._clock()
        with excluded_wait():
            while (left_s := pause_s - (self._clock() - began)) > 0:
                silence = self._places.silence()
                nobody = not silence.ever and not silence.under_way
                if nobody or silence.seconds >= self._patience_s:
                    raise EndpointRefused(
                        f"{failure} {pause_s:.1f} s: longer than --patience-s {self._patience_s:g}, and nobody is "
                        "served); what was finished is kept: run the same command again later"
                    )
                soonest_s, latest_s = LOOK_S
                self._sleep(min(left_s, latest_s, max(soonest_s, self._patience_s - silence.seconds)))
        return self._clock() - began

    def pressure(self) -> Pressure:
        """Limit of concurrent requests (0: none), number of waiting ones, and number of refusals so far. All zero if
        other processes share the limit."""
        return self._places.pressure()

    def ever_answered(self) -> bool:
        """Whether the endpoint ever answered a request that uses these slots, of this process or another."""
        return self._places.silence().ever

    def _given_up(self, why: str, began: float) -> PolicyUnreachable:
        """The error to raise after the last attempt, with reason ``why``: EndpointRefused if no request was answered
        since ``began`` (time of the first attempt) and the health probe fails, else PolicyUnreachable."""
        silent_s = self._places.silence().seconds
        if silent_s + BETWEEN_CLOCKS_S >= min(self._patience_s, self._clock() - began) and not self._is_alive():
            return EndpointRefused(f"{self._where} answered nobody for {silent_s:.0f} s: {why}; {LATER}")
        return PolicyUnreachable(f"{self._where}: {why}")


def requested_pause_s(headers: Mapping[str, str], now: float) -> float | None:
    """The pause in seconds that the response headers ``retry-after-ms`` or ``retry-after`` (seconds or HTTP date)
    demand. ``now``: Unix seconds. None if there is no such header, its form is unknown, or its pause is not positive:
    immediate retries would flood the endpoint, so the caller chooses the pause."""
    for name in ("retry-after-ms", "retry-after"):
        with suppress(KeyError, ValueError, OverflowError):
            text = headers[name]
            seconds = float(text) / 1000 if name.endswith("-ms") else _seconds(text.strip(), now)
            if 0 < seconds < math.inf:
                return seconds
    return None


def _seconds(text: str, now: float) -> float:
    if text.replace(".", "", 1).isdigit():
        return float(text)
    return email.utils.parsedate_to_datetime(text).timestamp() - now
