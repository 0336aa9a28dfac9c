"""Causal attention over packed documents: one function, several implementations, one table.

Every implementation takes segment ids and is checked against ``plain``. Positions are not needed here: they enter
through the rotary embedding. Knows nothing of caches; serving has its own attention over cached keys.

Legend: B rows, L length, H query heads, K key/value heads, G = H / K, h head width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from lemur_ray.model.attention import cudnn as gpu
from lemur_ray.model.attention import splash as tpu
from lemur_ray.model.attention.block_skipping import skipping
from lemur_ray.model.layout import ROWS, Layout
from lemur_ray.model.remat import named

CHUNK = 128
"""Queries of one block of the chunked implementation."""

_MASKED = -1e30


def _grouped(q_BLHh: jax.Array, num_kv_heads: int) -> jax.Array:
    rows, length, heads, width = q_BLHh.shape
    return q_BLHh.reshape(rows, length, num_kv_heads, heads // num_kv_heads, width)


def _attend(q: jax.Array, k: jax.Array, v: jax.Array, visible: jax.Array) -> jax.Array:
    """q (B,Q,K,G,h) on k, v (B,T,K,h) where visible (B,Q,T): (B,Q,K,G,h)."""
    scale = q.shape[-1] ** -0.5
    scores = jnp.einsum("bqkgh,btkh->bkgqt", q * scale, k, preferred_element_type=jnp.float32)
    scores = jnp.where(visible[:, None, None], scores, _MASKED)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bkgqt,btkh->bqkgh", weights, v, preferred_element_type=jnp.float32).astype(q.dtype)


def plain(q_BLHh: jax.Array, k_BLKh: jax.Array, v_BLKh: jax.Array, segment_ids_BL: jax.Array) -> jax.Array:
    """The oracle: every score of the row at once. Returns (B, L, H, h)."""
    length = q_BLHh.shape[1]
    visible = segment_ids_BL[:, :, None] == segment_ids_BL[:, None, :]
    visible &= jnp.tril(jnp.ones((length, length), bool))
    return _attend(_grouped(q_BLHh, k_BLKh.shape[2]), k_BLKh, v_BLKh, visible).reshape(q_BLHh.shape)


def chunked(q_BLHh: jax.Array, k_BLKh: jax.Array, v_BLKh: jax.Array, segment_ids_BL: jax.Array) -> jax.Array:
    """Queries in blocks of CHUNK against the keys up to their own end: nothing above the diagonal block is computed."""
    length = q_BLHh.shape[1]
    q = _grouped(q_BLHh, k_BLKh.shape[2])
    out = []
    for begin in range(0, length, CHUNK):
        end = min(begin + CHUNK, length)
        visible = segment_ids_BL[:, begin:end, None] == segment_ids_BL[:, None, :end]
        visible &= jnp.arange(begin, end)[:, None] >= jnp.arange(end)[None, :]
        out.append(_attend(q[:, begin:end], k_BLKh[:, :end], v_BLKh[:, :end], visible))
    return jnp.concatenate(out, axis=1).reshape(q_BLHh.shape)


Attention = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]
IMPLEMENTATIONS: dict[str, Attention] = {
    "plain": plain,
    "chunked": chunked,
    "skipping": skipping,
    "splash": tpu.splash,
    "cudnn": gpu.cudnn,
}
"""Every implementation there is, by name."""
NAMES_ITSELF = ("splash",)
"""Implementations that name their output and what else their gradient needs "attention" themselves."""


def choose(platform: str, num_devices: int, length: int, head_dim: int, dtype: Any) -> tuple[str, str]:
    """Name of the fastest implementation for a platform and shape, and why it is a fallback ("" where it is not).

    On CPU loops with run-time bounds win on one device and cannot be partitioned.
    """
    if platform == "cpu":
        return ("skipping" if num_devices == 1 else "chunked"), ""
    if platform == "tpu":
        reason = tpu.unfit(length, head_dim)
        return ("chunked", reason) if reason else ("splash", "")
    if platform in ("gpu", "cuda", "rocm"):
        reason = gpu.unfit(head_dim, dtype)
        return ("chunked", reason) if reason else ("cudnn", "")
    return "chunked", f"no kernel for platform {platform!r}"


def attention(
    q_BLHh: jax.Array,
    k_BLKh: jax.Array,
    v_BLKh: jax.Array,
    segment_ids_BL: jax.Array,
    name: str,
    layout: Layout | None = None,
) -> jax.Array:
    """Causal attention inside documents.

    q (B, L, H, h), k and v (B, L, K, h) with K dividing H; segment_ids (B, L) integer, tokens see equal ids only.
    name: an implementation of the table. layout: on a mesh every device attends for its rows and heads. Returns
    (B, L, H, h) in q's dtype, named "attention" for remat policies.
    """
    if name not in IMPLEMENTATIONS:
        raise ValueError(f"attention {name!r} does not exist: choose one of {', '.join(IMPLEMENTATIONS)}")
    attend = IMPLEMENTATIONS[name]
    if layout is not None and layout.mesh is not None:
        heads = P(ROWS, None, "tp", None)
        attend = layout.local(attend, (heads, heads, heads, P(ROWS, None)), heads)
    out = attend(q_BLHh, k_BLKh, v_BLKh, segment_ids_BL)
    return out if name in NAMES_ITSELF else named(out, "attention")
