"""Causal attention over packed documents in plain XLA: blocks of queries, nothing above the diagonal block computed.

Runs on every platform, mesh and shape; the fallback where no kernel fits."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lemur_ray.model.attention.interface import NO_LIMITS, Limits
from lemur_ray.model.attention.oracle import grouped, in_window, over_visible

CHUNK = 128
"""Number of queries in a block."""


def chunked(
    q_BLHh: jax.Array, k_BLKh: jax.Array, v_BLKh: jax.Array, segment_ids_BL: jax.Array, limits: Limits = NO_LIMITS
) -> jax.Array:
    """`interface.Attention` for CHUNK queries at a time, each chunk with only the keys from the first that its window
    reaches (without a window: the row's first) to its last query."""
    length, window = q_BLHh.shape[1], limits.window
    q = grouped(q_BLHh, k_BLKh.shape[2])
    out = []
    for begin in range(0, length, CHUNK):
        first, end = max(0, begin - window + 1) if window else 0, min(begin + CHUNK, length)
        visible = segment_ids_BL[:, begin:end, None] == segment_ids_BL[:, None, first:end]
        visible &= in_window(jnp.arange(begin, end), jnp.arange(first, end), window)
        out.append(over_visible(q[:, begin:end], k_BLKh[:, first:end], v_BLKh[:, first:end], visible, limits.cap))
    return jnp.concatenate(out, axis=1).reshape(q_BLHh.shape)
