"""A request on its way through the engine, and the pieces that its prompt is computed in.

Knows nothing of queues, places or of who goes first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs


@dataclass(eq=False)
class LiveSequence:
    """A request on its way."""

    number: int
    request: Generation
    prompt: np.ndarray
    handle: int = -1
    """Its place in the cache; -1: it waits"""
    cached: int = 0
    """Prompt tokens that were found in the cache when it was first admitted"""
    version: str = ""
    """Of the weights that it was computed with"""
    admissions: int = 0
    """Times it was given a place; more than one: it was preempted"""
    computed: int = 0
    """Tokens whose keys and values are in the cache"""
    generated: list[int] = field(default_factory=list)
    prefill: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    """What is computed in tiles: the prompt, and after a preemption perhaps the reply so far"""
    prompt_logprobs: TokenLogprobs | None = None
    """Of every token of the prompt, as far as they are known, where they are wanted"""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    """Of every generated token, where they are wanted"""
    refusal: str = ""
    """Why what it asks for cannot be met"""
    draw_row: tuple[Any, ...] | None = None
    """The request as arguments of the sampling program (``compute.sampling.draw_row``), once it was drawn for"""
    after: tuple[LiveSequence, int] | None = None
    """Waits until that one has computed so many tokens, which both have in common"""

    @property
    def known(self) -> np.ndarray:
        """Prompt and reply so far, int32."""
        return np.concatenate([self.prompt, np.array(self.generated, np.int32)]) if self.generated else self.prompt

    @property
    def length(self) -> int:
        """Tokens of prompt and reply so far."""
        return len(self.prompt) + len(self.generated)

    @property
    def next_decoded(self) -> np.ndarray:
        """(1,) int32: the generated token that the model sees next."""
        at = self.computed - len(self.prompt)
        return np.array(self.generated[at : at + 1], np.int32)

    @property
    def is_complete(self) -> bool:
        """Whether all that is known is computed, so that the next token can be drawn."""
        return self.computed == self.length

    @property
    def needs_prompt_logprobs(self) -> bool:
        return self.prompt_logprobs is not None and not self.generated

    @property
    def is_prefilling(self) -> bool:
        return self.computed < len(self.prefill)


@dataclass(frozen=True)
class Tile:
    """A piece of one prompt."""

    sequence: LiveSequence
    start: int
    tokens: np.ndarray

    @property
    def is_last(self) -> bool:
        return self.start + len(self.tokens) == len(self.sequence.prefill)

    def following(self, length: int) -> np.ndarray:
        """(length,) int32 ids behind those of the tile; 0 where there is none."""
        ids = np.zeros(length, np.int32)
        found = self.sequence.prompt[self.start + 1 : self.start + 1 + len(self.tokens)]
        ids[: len(found)] = found
        return ids
