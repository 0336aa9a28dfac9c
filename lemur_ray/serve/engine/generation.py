"""A request to the engine: the prompt, the limits of the reply, and how its tokens are drawn.

Holds token ids and numbers only; knows nothing of how any of it is computed."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lemur_ray.serve.engine.errors import ContextExceeded
from lemur_ray.serve.engine.sampling_options import InvalidRequest, SamplingOptions, check_ids


class UnsatisfiableConstraint(ValueError):
    """The constraint of a request allows no reply, or takes too much to compute; the message says which."""


class Constraint(Protocol):
    """Restricts a reply token by token. Belongs to one generation and is called in the engine's thread.
    Either method may raise UnsatisfiableConstraint."""

    def allowed(self) -> np.ndarray:
        """Bit mask of the tokens that may come next: (at least vocabulary / 32,) uint32, bit i % 32 of word i // 32 for
        token i."""

    def accept(self, token: int) -> None:
        """Advance the state by ``token``, which was drawn."""


@dataclass(frozen=True)
class Generation:
    """A request for one reply, in token ids. It is validated only by ``check``."""

    prompt: tuple[int, ...]
    max_tokens: int
    """0 generates nothing: for the log-probabilities of a prompt"""
    sampling: SamplingOptions = SamplingOptions()
    stop_ids: frozenset[int] = frozenset()
    """Ids that end the reply; the one that did is its last token"""
    constraint: Constraint | None = None
    """Limits the reply to allowed tokens (a grammar); None: any"""
    sample_index: int = 0
    """Number among several replies to one request, each of which draws its own noise from the same seed"""
    logprobs: bool = False
    """Whether to return log-probabilities of generated tokens, from logits that no option above has changed"""
    prompt_logprobs: bool = False
    """Whether to return log-probabilities of the prompt's tokens, too"""
    session_id: str = ""
    """Name of the conversation; its part of the cache is pinned for a while after the reply; empty: not pinned"""

    @property
    def is_greedy(self) -> bool:
        """Whether every step takes the likeliest token (temperature 0) of logits that no penalty, bias or constraint
        changes, and no log-probabilities of generated tokens are requested."""
        edits = self.sampling.edits_logits or self.constraint is not None
        return self.sampling.temperature <= 0 and not (edits or self.logprobs)

    def check(self, vocab_size: int, context: int) -> None:
        """Raise ContextExceeded if prompt and reply may exceed ``context`` tokens, and InvalidRequest for an empty
        prompt, ids outside the vocabulary, or options out of range. max_tokens 0 is valid only with
        ``prompt_logprobs``."""
        if not self.prompt or self.max_tokens < (not self.prompt_logprobs):
            raise InvalidRequest(
                "prompt", "or max_tokens is empty: expected at least one prompt token and max_tokens of at least 1"
            )
        self.sampling.check(vocab_size)
        check_ids("prompt", (min(self.prompt), max(self.prompt)), vocab_size)
        if len(self.prompt) + self.max_tokens > context:
            raise ContextExceeded(len(self.prompt), self.max_tokens, context)
