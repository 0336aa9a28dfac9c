"""Data that enters and leaves the engine's thread: items of its inbox, events for listeners, counters.

Knows nothing of how tokens are generated."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from lemur_ray.serve.config import InFlight
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


def _stat(kind: Literal["gauge", "counter"], about: str, default: float = 0) -> Any:
    return field(default=default, metadata={kind: about})


@dataclass
class Stats:
    """Counters since the start of one engine, and gauges of its current state, each with its description in /metrics.
    Written by the engine's thread; may be read by any."""

    active: int = _stat("gauge", "Sequences that are computed")
    queued: int = _stat("gauge", "Requests that wait for a slot")
    blocks: int = _stat("gauge", "Blocks of the cache")
    blocks_held: int = _stat("gauge", "Blocks of running sequences and of pinned sessions")
    blocks_pinned: int = _stat("gauge", "Blocks of pinned sessions")
    batch_invariant: bool = _stat("gauge", "Whether tokens do not depend on the load", False)
    requests: int = _stat("counter", "Requests that were taken")
    prompt_tokens: int = _stat("counter", "Tokens of prompts")
    cached_tokens: int = _stat("counter", "Tokens of prompts that were reused from the cache")
    prefill_tokens: int = _stat("counter", "Tokens of prompts that were computed")
    preemptions: int = _stat("counter", "Sequences that lost their blocks and were taken in again")
    recomputed_tokens: int = _stat("counter", "Tokens that were computed again for that")
    """Counted in prefill_tokens or decode_rows, too"""
    generated_tokens: int = _stat("counter", "Tokens of replies")
    decode_steps: int = _stat("counter", "Steps in which replies went on")
    decode_rows: int = _stat("counter", "Rows of those steps")
    padding_rows: int = _stat("counter", "Rows of those steps that nobody needed")
    """Computed in addition to decode_rows"""
    recompiles_after_warmup: int = _stat("counter", "Programs that were missing after the start")
    """0 is expected"""
    finished: dict[str, int] = field(default_factory=dict)
    """Number of ended requests by finish reason"""
    warmup_s: float = 0.0
    """Seconds that the start took"""
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
