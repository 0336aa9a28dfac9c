"""The state of a request in the engine, and tiles of its prompt. Knows nothing of queues, blocks or scheduling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs


@dataclass(eq=False)
class LiveSequence:
    """State of a request from submission to its end: its number, prompt and generated ids, how much of them is
    computed, and its blocks in the cache."""

    number: int
    request: Generation
    prompt: np.ndarray
    handle: int = -1
    """Handle of its blocks in ``BlockCache``; -1 while it waits for blocks"""
    cached: int = 0
    """Prompt tokens reused from the cache at the first admission"""
    version: str = ""
    """Version of the weights that compute it"""
    admissions: int = 0
    """Times it was admitted; more than one: it was preempted"""
    computed: int = 0
    """Tokens whose keys and values are in the cache"""
    generated: list[int] = field(default_factory=list)
    prefill: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    """Tokens computed in tiles: the prompt, and after a preemption perhaps the reply so far"""
    prompt_logprobs: TokenLogprobs | None = None
    """Log-probabilities of the prompt's tokens, NaN where not yet known; None if not requested"""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    """Log-probabilities of every generated token, if requested"""
    refusal: str = ""
    """Reason why the request cannot be satisfied"""
    draw_row: tuple[Any, ...] | None = None
    """The request as arguments of the sampling program (``compute.sampling.draw_row``), once it was drawn for"""
    after: tuple[LiveSequence, int] | None = None
    """Sequence that is computing a prefix of this one, and the prefix's length: this one waits for it"""

    @property
    def known(self) -> np.ndarray:
        """Token ids of prompt and reply so far, int32."""
        return np.concatenate([self.prompt, np.array(self.generated, np.int32)]) if self.generated else self.prompt

    @property
    def length(self) -> int:
        """Tokens of prompt and reply so far."""
        return len(self.prompt) + len(self.generated)

    @property
    def next_decoded(self) -> np.ndarray:
        """(1,) int32: the first generated token without computed keys and values, the next decode step's input."""
        at = self.computed - len(self.prompt)
        return np.array(self.generated[at : at + 1], np.int32)

    @property
    def is_complete(self) -> bool:
        """Whether all tokens so far are computed, so that the next one can be drawn."""
        return self.computed == self.length

    @property
    def can_run_ahead(self) -> bool:
        """Whether a step may be sent before the token that this sequence draws in the step before has arrived: it
        draws one, as all tokens but the last are computed, and no constraint depends on it."""
        return self.computed + 1 == self.length and self.request.constraint is None

    def take_over(self, version: str) -> None:
        """Record that weights ``version`` compute this sequence from now on. ``version`` is replaced if nothing was
        computed or generated before; otherwise "+VERSION" is appended to it, with "-kept" if keys and values of the
        earlier weights stay in use."""
        if self.generated or self.computed:
            self.version += f"+{version}{'-kept' if self.computed else ''}"
        else:
            self.version = version

    @property
    def needs_prompt_logprobs(self) -> bool:
        return self.prompt_logprobs is not None and not self.generated

    @property
    def is_prefilling(self) -> bool:
        return self.computed < len(self.prefill)


@dataclass(frozen=True)
class Tile:
    """Consecutive tokens of a prompt (up to the tile size), computed as one row; ``start``: position of the first."""

    sequence: LiveSequence
    start: int
    tokens: np.ndarray

    @property
    def is_last(self) -> bool:
        return self.start + len(self.tokens) == len(self.sequence.prefill)

    @property
    def can_be_mixed(self) -> bool:
        """Whether the tile may be part of a mixed step: log-probabilities of its prompt are not requested, and no
        constraint depends on the token after it."""
        sequence = self.sequence
        return not sequence.needs_prompt_logprobs and (sequence.request.constraint is None or not self.is_last)

    def following(self, length: int) -> np.ndarray:
        """(length,) int32: the prompt's id after each token of the tile; 0 after the end of the prompt or the tile."""
        ids = np.zeros(length, np.int32)
        following = self.sequence.prompt[self.start + 1 : self.start + 1 + len(self.tokens)]
        ids[: len(following)] = following
        return ids
