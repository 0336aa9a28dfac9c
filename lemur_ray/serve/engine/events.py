"""What an engine tells about its requests and about itself.

Knows nothing of how it generates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs, joined

Finish = Literal["stop", "length", "cancelled", "error"]


class Event(NamedTuple):
    """Something that happened to a request."""

    number: int
    tokens: tuple[int, ...] = ()
    finish: Finish | None = None
    cached: int = 0
    """Prompt tokens that came from the cache"""
    version: str = ""
    """Of the weights that all of the reply comes from"""
    logprobs: TokenLogprobs | None = None
    """Of ``tokens``, where they were asked for"""
    prompt_logprobs: TokenLogprobs | None = None
    """With the first event, where they were asked for"""
    refusal: str = ""
    """Of an event that ends in an error: what of the request is to blame; empty where it is the engine"""


Listener = Callable[[Sequence[Event]], None]


@dataclass
class Stats:
    """Counters since the start, and gauges. Read from any thread."""

    active: int = 0
    queued: int = 0
    requests: int = 0
    finished: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefill_tokens: int = 0
    preemptions: int = 0
    """Sequences that lost their blocks and were taken in again"""
    recomputed_tokens: int = 0
    """Tokens that had to be computed again for that; they count under prefill_tokens or decode_rows too"""
    generated_tokens: int = 0
    decode_steps: int = 0
    decode_rows: int = 0
    padding_rows: int = 0
    recompiles_after_warmup: int = 0
    blocks: int = 0
    """Blocks of the cache"""
    blocks_held: int = 0
    """Of them, those of running sequences and of pinned sessions"""
    blocks_pinned: int = 0
    warmup_s: float = 0.0
    batch_invariant: bool = False
    padded: bool = False
    """Exact only because every step is padded to one shape: it was asked for, and the arithmetic does not give it"""


def event_of(sequence: LiveSequence, finish: Finish | None, new: int) -> Event:
    """What there is to tell about the last ``new`` tokens of a sequence."""
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
