"""Causal attention over packed documents in plain XLA, on every platform, mesh and shape: the slow reference against
which all implementations are tested, and the fallback where no kernel fits.

Legend: B rows, L length, H query heads, K key/value heads, G = H / K, h head width."""

import jax
import jax.numpy as jnp

from lemur_ray.model.attention.interface import NO_LIMITS, Limits
from lemur_ray.model.matmul import sum_dtype

MASKED = -1e30
"""Score of a masked key."""
CHUNK = 128
"""Number of queries in a block of ``chunked``."""


def grouped(q_BLHh: jax.Array, num_kv_heads: int) -> jax.Array:
    """Reshape queries (B, L, H, h) to (B, L, K, G, h): heads grouped by their key head."""
    rows, length, heads, width = q_BLHh.shape
    return q_BLHh.reshape(rows, length, num_kv_heads, heads // num_kv_heads, width)


def capped(scores: jax.Array, cap: float) -> jax.Array:
    """cap x tanh(scores / cap), a soft limit that Gemma 2 sets to scores and logits; 0: unchanged."""
    return cap * jnp.tanh(scores / cap) if cap else scores


def in_window(queries_Q: jax.Array, keys_T: jax.Array, window: int) -> jax.Array:
    """(Q, T) bool: keys at or before a query, and less than ``window`` tokens before it (0: any number).
    queries (Q,), keys (T,): integer positions in the row."""
    back = queries_Q[:, None] - keys_T[None, :]
    return (back >= 0) & (back < window) if window else back >= 0


def over_visible(q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array, cap: float = 0.0) -> jax.Array:
    """Attention of queries q (B,Q,K,G,h) to keys k and values v (B,T,K,h) where ``visible`` (B,Q,T) bool: (B,Q,K,G,h)
    in q's dtype. A query that sees no key gets the mean of all values. cap: limit of scores, 0: none."""
    scale = q.shape[-1] ** -0.5
    scores = jnp.einsum("bqkgh,btkh->bkgqt", q * scale, k, preferred_element_type=sum_dtype(q))
    scores = jnp.where(visible[:, None, None], capped(scores, cap), MASKED)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bkgqt,btkh->bqkgh", weights, v, preferred_element_type=sum_dtype(v)).astype(q.dtype)


def plain(
    q_BLHh: jax.Array, k_BLKh: jax.Array, v_BLKh: jax.Array, segment_ids_BL: jax.Array, limits: Limits = NO_LIMITS
) -> jax.Array:
    """`interface.Attention` as one product over all pairs of tokens: memory grows with L x L."""
    at = jnp.arange(q_BLHh.shape[1])
    visible = (segment_ids_BL[:, :, None] == segment_ids_BL[:, None, :]) & in_window(at, at, limits.window)
    return over_visible(grouped(q_BLHh, k_BLKh.shape[2]), k_BLKh, v_BLKh, visible, limits.cap).reshape(q_BLHh.shape)


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
