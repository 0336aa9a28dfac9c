"""Data that enters and leaves the engine's thread: items of its inbox, events for listeners, counters.

Knows nothing of how tokens are generated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from lemur_ray.serve.config import InFlight
from lemur_ray.serve.engine.errors import EngineClosed
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs, joined

Finish = Literal["stop", "length", "cancelled", "error"]


class Event(NamedTuple):
    """Event of a step for the listener of request ``number``: new tokens, its end (``finish``), or both."""

    number: int
    tokens: tuple[int, ...] = ()
    finish: Finish | None = None
    cached: int = 0
    """Prompt tokens that came from the cache"""
    version: str = ""
    """Version of the weights that compute the reply; several if they were replaced meanwhile (``config.InFlight``)"""
    logprobs: TokenLogprobs | None = None
    """Log-probabilities of ``tokens``, if requested"""
    prompt_logprobs: TokenLogprobs | None = None
    """Log-probabilities of the prompt's tokens, only in the first event and if requested"""
    refusal: str = ""
    """Reason why the request cannot be satisfied, if ``finish`` is "error"; empty if its computation failed"""


Listener = Callable[[Sequence[Event]], None]


@dataclass
class Stats:
    """Counters since the start of one engine, and gauges of its current state: active (sequences being computed),
    queued (requests that wait), blocks, batch_invariant. Written by the engine's thread; may be read by any."""

    active: int = 0
    queued: int = 0
    requests: int = 0
    finished: dict[str, int] = field(default_factory=dict)
    """Number of ended requests by finish reason"""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens reused from the cache, a part of prompt_tokens"""
    prefill_tokens: int = 0
    """Tokens computed in prefill steps"""
    preemptions: int = 0
    """Sequences that lost their blocks and were admitted again"""
    recomputed_tokens: int = 0
    """Tokens computed again after preemptions; prefill_tokens or decode_rows count them too"""
    generated_tokens: int = 0
    decode_steps: int = 0
    decode_rows: int = 0
    """Sequences of all decode steps together; ``padding_rows`` were computed in addition, for nothing"""
    padding_rows: int = 0
    recompiles_after_warmup: int = 0
    """Programs compiled while serving; 0 is expected"""
    blocks: int = 0
    """Blocks of the cache"""
    blocks_held: int = 0
    """Blocks of running sequences and of pinned sessions"""
    blocks_pinned: int = 0
    warmup_s: float = 0.0
    """Seconds that the start took"""
    batch_invariant: bool = False
    """Whether a token does not depend on the load: the same request always gets the same reply"""
    padded: bool = False
    """Exact only because every step is padded to one shape: the arithmetic of this machine is not exact by itself"""


def event_of(sequence: LiveSequence, finish: Finish | None, new: int) -> Event:
    """The event with the last ``new`` tokens of a sequence; finish: why the reply ends, None if it goes on."""
    tokens = tuple(sequence.generated[len(sequence.generated) - new :])
    logprobs = joined(sequence.logprobs[len(sequence.logprobs) - new :]) if sequence.logprobs and new else None
    is_first = new == len(sequence.generated)
    return Event(
        sequence.number,
        tokens,
        finish,
        sequence.cached,
        sequence.version,
        logprobs,
        sequence.prompt_logprobs if is_first else None,
        sequence.refusal,
    )


log = logging.getLogger(__name__)


class Outbox:
    """Collects events by listener until ``send`` delivers them."""

    def __init__(self) -> None:
        self._events: dict[Listener, list[Event]] = {}

    def put(self, listener: Listener, event: Event) -> None:
        self._events.setdefault(listener, []).append(event)

    def send(self) -> set[int]:
        """Call every listener once with all its events, in order; returns the numbers of the requests whose listener
        raised (logged). Empty: nothing is called."""
        events, self._events = self._events, {}
        failed: set[int] = set()
        for listener, batch in events.items():
            try:
                listener(batch)
            except Exception:  # only its own requests fail
                log.exception("a listener failed: its requests are given up")
                failed |= {event.number for event in batch}
        return failed


class Submit(NamedTuple):
    """Inbox item: start a request. ``listener`` gets its events; ``every_token``: after each step, else at the end."""

    sequence: LiveSequence
    listener: Listener
    every_token: bool


class Cancel(NamedTuple):
    """Inbox item: end the request with this number."""

    number: int


class Update(NamedTuple):
    """Inbox item: switch to other weights, of version ``version``. ``in_flight``: what happens to running requests;
    ``done``: resolved once the weights are in use, or with the error."""

    staged: Any
    """Result of ``Compute.stage``"""
    version: str
    in_flight: InFlight
    done: Future[None]


Item = Submit | Cancel | Update | None
"""None only wakes the thread."""


def give_up(pending: dict[int, Submit], updates: Iterable[Update]) -> None:
    """Fail pending requests with an event ``error``, and updates with EngineClosed, for an engine that has ended.
    pending: by request number."""
    outbox = Outbox()
    for number, item in pending.items():
        outbox.put(item.listener, Event(number, (), "error"))
    outbox.send()
    for update in updates:
        update.done.set_exception(EngineClosed("the engine ended before the weights were replaced"))
