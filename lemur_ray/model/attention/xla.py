"""Causal attention over packed documents in plain XLA: blocks of queries, nothing above the diagonal block computed.

Runs on every platform, mesh and shape; the fallback where no kernel fits.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lemur_ray.model.attention.oracle import grouped, over_visible

CHUNK = 128
"""Number of queries in a block."""


def chunked(q_BLHh: jax.Array, k_BLKh: jax.Array, v_BLKh: jax.Array, segment_ids_BL: jax.Array) -> jax.Array:
    """Causal attention of q (B, L, H, h) to k, v (B, L, K, h) with equal segment ids (B, L): (B, L, H, h) as q's dtype.

    Scores are computed for CHUNK queries at a time, with the keys up to the last of them.
    """
    length = q_BLHh.shape[1]
    q = grouped(q_BLHh, k_BLKh.shape[2])
    out = []
    for begin in range(0, length, CHUNK):
        end = min(begin + CHUNK, length)
        visible = segment_ids_BL[:, begin:end, None] == segment_ids_BL[:, None, :end]
        visible &= jnp.arange(begin, end)[:, None] >= jnp.arange(end)[None, :]
        out.append(over_visible(q[:, begin:end], k_BLKh[:, :end], v_BLKh[:, :end], visible))
    return jnp.concatenate(out, axis=1).reshape(q_BLHh.shape)
