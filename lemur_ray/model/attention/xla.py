"""Causal attention over packed documents in plain XLA: blocks of queries, nothing above the diagonal block computed.

Runs on every platform, mesh and shape; the fallback where no kernel fits.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lemur_ray.model.attention.oracle import grouped, in_window, over_visible

CHUNK = 128
"""Number of queries in a block."""


def chunked(
    q_BLHh: jax.Array,
    k_BLKh: jax.Array,
    v_BLKh: jax.Array,
    segment_ids_BL: jax.Array,
    *,
    window: int = 0,
    cap: float = 0.0,
) -> jax.Array:
    """Causal attention of q (B, L, H, h) to k, v (B, L, K, h) with equal segment ids (B, L): (B, L, H, h) as q's dtype.

    Scores are computed for CHUNK queries at a time, with the keys up to the last of them and from the first that a
    window reaches. window, cap: as in ``dispatch.attention``.
    """
    length = q_BLHh.shape[1]
    q = grouped(q_BLHh, k_BLKh.shape[2])
    out = []
    for begin in range(0, length, CHUNK):
        first, end = max(0, begin - window + 1) if window else 0, min(begin + CHUNK, length)
        visible = segment_ids_BL[:, begin:end, None] == segment_ids_BL[:, None, first:end]
        visible &= in_window(jnp.arange(begin, end), jnp.arange(first, end), window)
        out.append(over_visible(q[:, begin:end], k_BLKh[:, first:end], v_BLKh[:, first:end], visible, cap))
    return jnp.concatenate(out, axis=1).reshape(q_BLHh.shape)
