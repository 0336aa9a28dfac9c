"""Log-probabilities of tokens and of what else was likely.

They come from plain logits, before any setting of a request changes them. Knows nothing of jax or requests.

Legend: N tokens, K alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

ALTERNATIVES = 20
"""As many as OpenAI's protocol can ask for."""


class Scores(NamedTuple):
    """Scores of N tokens. NaN where a token has none: the first of a prompt, or one that was not asked about."""

    logprob: np.ndarray
    """(N,) float32, of the token itself"""
    top_ids: np.ndarray
    """(N, K) int32, likeliest first, the lowest id on ties"""
    top_logprobs: np.ndarray
    """(N, K) float32"""

    @staticmethod
    def unknown(count: int, alternatives: int) -> Scores:
        """Room for the scores of so many tokens."""
        nothing = np.full((count, alternatives), np.nan, np.float32)
        return Scores(np.full(count, np.nan, np.float32), np.zeros((count, alternatives), np.int32), nothing)

    @staticmethod
    def on_host(device: Any) -> Scores:
        """What a program returned, as numpy."""
        return Scores(*map(np.asarray, device))

    def part(self, begin: int, end: int) -> Scores:
        """The scores of some of the tokens, not copied."""
        return Scores(*(field[begin:end] for field in self))

    def put(self, begin: int, other: Scores) -> None:
        """Write ``other`` into these, from token ``begin`` on."""
        for mine, theirs in zip(self, other, strict=True):
            mine[begin : begin + len(theirs)] = theirs


def joined(parts: Sequence[Scores]) -> Scores:
    """Scores one after the other."""
    return Scores(*map(np.concatenate, zip(*parts, strict=True)))
