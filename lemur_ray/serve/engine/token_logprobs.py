"""Log-probabilities of tokens and of their likeliest alternatives.

They come from the model's logits, before any option of a request changes them. Knows nothing of jax or requests.

Legend: N tokens, K alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

ALTERNATIVES = 20
"""Alternatives of each token: the most that OpenAI's protocol can ask for."""


class TokenLogprobs(NamedTuple):
    """Log-probabilities (natural logarithm) of N tokens. NaN for the first token of a prompt, and for tokens of which
    nobody requested them."""

    logprob: np.ndarray
    """(N,) float32, of the token itself"""
    top_ids: np.ndarray
    """(N, K) int32, likeliest first, the lowest id on ties"""
    top_logprobs: np.ndarray
    """(N, K) float32"""

    @staticmethod
    def unknown(count: int, alternatives: int) -> TokenLogprobs:
        """Unknown (NaN) log-probabilities of ``count`` tokens, to be filled. alternatives: number per token."""
        nothing = np.full((count, alternatives), np.nan, np.float32)
        return TokenLogprobs(np.full(count, np.nan, np.float32), np.zeros((count, alternatives), np.int32), nothing)

    @staticmethod
    def on_host(device: Any) -> TokenLogprobs:
        """From three arrays that a program returned, as NumPy arrays; waits for the device."""
        return TokenLogprobs(*map(np.asarray, device))

    def part(self, begin: int, end: int) -> TokenLogprobs:
        """A view of tokens ``begin`` to ``end`` (exclusive), not a copy."""
        return TokenLogprobs(*(field[begin:end] for field in self))

    def put(self, begin: int, other: TokenLogprobs) -> None:
        """Write ``other`` into these, from token ``begin`` on."""
        for mine, theirs in zip(self, other, strict=True):
            mine[begin : begin + len(theirs)] = theirs


def joined(parts: Sequence[TokenLogprobs]) -> TokenLogprobs:
    """Concatenate the log-probabilities of consecutive tokens. Raises ValueError for no parts."""
    return TokenLogprobs(*map(np.concatenate, zip(*parts, strict=True)))
