"""The signature that all implementations of attention share."""

from typing import NamedTuple, Protocol

import jax


class Limits(NamedTuple):
    """Limits of attention besides token order and documents. Static: each value compiles a program of its own."""

    window: int = 0
    """Most recent tokens that a token attends to, itself included; 0: all."""
    cap: float = 0.0
    """Scores become cap x tanh(score / cap); 0: they stay."""
    max_documents: int = 64
    """Maximum number of runs of equal segment ids in a row, padding included. Only kernels with packed rows use it."""
    block: int = 512
    """Maximum number of tokens in a block. Only the kernel for TPU uses it."""


NO_LIMITS = Limits()


class Attention(Protocol):
    """Type of a function that computes causal attention in which no document sees another."""

    def __call__(
        self,
        q_BLHh: jax.Array,
        k_BLKh: jax.Array,
        v_BLKh: jax.Array,
        segment_ids_BL: jax.Array,
        limits: Limits = NO_LIMITS,
    ) -> jax.Array:
        """Attention of q (B, L, H, h) to k and v (B, L, K, h), K dividing H: (B, L, H, h) in q's dtype.
        A token attends to tokens of equal segment id (B, L, integer), at or before it in the row."""
