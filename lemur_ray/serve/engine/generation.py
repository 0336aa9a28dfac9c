"""A request to the engine and what it draws with: ids and numbers only.

Knows nothing of how any of it is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from lemur_ray.serve.engine.errors import ContextExceeded


class UnsatisfiableConstraint(ValueError):
    """What a request asks of its reply is impossible, or too much to compute; the message says which."""


class Constraint(Protocol):
    """What a reply may be, token by token. It belongs to one generation; called in the engine's thread.

    Either method may raise UnsatisfiableConstraint.
    """

    def allowed(self) -> np.ndarray:
        """(at least vocabulary / 32,) uint32: bit i % 32 of word i // 32 says whether token i may come next."""

    def accept(self, token: int) -> None:
        """This token was drawn."""


class LogitBias(tuple[tuple[int, float], ...]):
    """Pairs of a token and what is added to its logit: there may be as many as the vocabulary has tokens.

    What is found out about them is found out once for all choices and all steps.
    """

    @cached_property
    def tokens(self) -> np.ndarray:
        """int64"""
        return np.array([token for token, _ in self], np.int64)

    @cached_property
    def values(self) -> np.ndarray:
        """float64"""
        return np.array([value for _, value in self], np.float64)

    @cached_property
    def is_valid(self) -> bool:
        """Whether it names each token once, and a finite number for it."""
        return len(np.unique(self.tokens)) == len(self) and bool(np.isfinite(self.values).all())

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest token, of at least one."""
        return int(self.tokens.min()), int(self.tokens.max())


@dataclass(frozen=True)
class Generation:
    """What to generate."""

    prompt: tuple[int, ...]
    max_tokens: int
    """0: nothing; for the scores of a prompt"""
    stop_ids: frozenset[int] = frozenset()
    """Ids that end the generation; the one that did is the last token given out"""
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    """Tokens less likely than this share of the likeliest one are never drawn"""
    presence_penalty: float = 0.0
    """Subtracted from the logit of every token that was generated before"""
    frequency_penalty: float = 0.0
    """The same, times how often it was"""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Added to the logits of these tokens, each named once; made a LogitBias"""
    constraint: Constraint | None = None
    seed: int = 0
    sample_index: int = 0
    """Number among several answers to one request; each draws its own noise from the same seed"""
    logprobs: bool = False
    """Score the generated tokens: their log-probabilities before anything above changes them"""
    prompt_logprobs: bool = False
    """Score the prompt's tokens too"""

    session_id: str = ""
    """Conversation that will be gone on with: what it has in the cache is kept for a while"""

    def __post_init__(self) -> None:
        if not isinstance(self.logit_bias, LogitBias):
            object.__setattr__(self, "logit_bias", LogitBias(self.logit_bias))

    @property
    def bias(self) -> LogitBias:
        """``logit_bias`` by its type."""
        assert isinstance(self.logit_bias, LogitBias)
        return self.logit_bias

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken and nothing else is asked for."""
        penalised = self.presence_penalty or self.frequency_penalty or self.logit_bias
        return self.temperature <= 0 and not self.logprobs and not penalised and self.constraint is None

    def check(self, vocab_size: int, context: int) -> None:
        """Raises ContextExceeded where it cannot fit, ValueError for what no model of that size could draw."""
        if not self.prompt or self.max_tokens < (not self.prompt_logprobs):
            raise ValueError("a generation needs at least one prompt token and max_tokens of at least 1")
        if not 0 <= self.top_k < 2**31 or not 0 <= self.temperature < math.inf or not 0 < self.top_p <= 1:
            raise ValueError(
                f"temperature {self.temperature}, top_k {self.top_k}, top_p {self.top_p}: expected a finite "
                "temperature of at least 0, top_k from 0 to 2147483647 and top_p above 0 and at most 1"
            )
        penalties = (self.presence_penalty, self.frequency_penalty)
        if not 0 <= self.min_p <= 1 or not all(map(math.isfinite, penalties)):
            raise ValueError(f"min_p {self.min_p}, penalties {penalties}: expected min_p from 0 to 1, finite penalties")
        if not self.bias.is_valid:
            raise ValueError("logit_bias names a token twice, or a bias that is not finite")
        named = {
            "prompt": (min(self.prompt), max(self.prompt)),
            **({"logit_bias": self.bias.bounds} if self.bias else {}),
        }
        for what, (lowest, highest) in named.items():
            if not 0 <= lowest <= highest < vocab_size:
                raise ValueError(f"{what} has token ids outside 0..{vocab_size - 1}")
        if len(self.prompt) + self.max_tokens > context:
            raise ContextExceeded(len(self.prompt), self.max_tokens, context)
