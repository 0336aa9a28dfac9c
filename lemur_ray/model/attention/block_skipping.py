"""Attention that computes only blocks within documents, with a custom backward pass; for one CPU device.

Queries are processed in blocks of ``BLOCK``. A block needs the keys from the start of its first document up to its own
end: its *reach*, a number of blocks known only at run time. Blocks of equal reach share one compiled loop with a
dynamic trip count, so every product has a static shape and the cost follows the documents' lengths. The backward pass
recomputes scores from the saved log-sum-exp, and computes the gradients of keys and values transposed: XLA's CPU
kernels are five times slower on the other orientation.

Legend: B rows, K key/value heads, G queries per key head, L length, C block, W = reach x C, h head width."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lemur_ray.model.attention.interface import NO_LIMITS, Limits
from lemur_ray.model.attention.oracle import capped, grouped, in_window
from lemur_ray.model.matmul import transposed

BLOCK = 128
"""Number of tokens in a block of queries or keys."""
_MASKED = -1e30


class BlockLimits(NamedTuple):
    """Options of one compiled program: tokens of a block, and the window and cap of `Limits`."""

    block: int
    window: int
    cap: float


def _dot(a: jax.Array, b: jax.Array, a_dim: int, b_dim: int) -> jax.Array:
    """Contract dimensions ``a_dim`` and ``b_dim`` of two arrays, batched over dimension 0, in float32."""
    dims = (((a_dim,), (b_dim,)), ((0,), (0,)))
    return lax.dot_general(a, b, dims, preferred_element_type=jnp.float32)


def reaches(segment_ids_BL: jax.Array, block: int, window: int = 0) -> jax.Array:
    """Number of key blocks that each query block needs, its own included: (B, L / block) int32. segment_ids: (B, L)
    integer below L; ``block`` divides L. window: tokens that a query attends to; 0: all before it."""
    rows, length = segment_ids_BL.shape
    slot = jnp.clip(segment_ids_BL, -1, length) + 1
    first = jnp.full((rows, length + 2), length, jnp.int32)
    at = jnp.arange(rows)[:, None]
    first = first.at[at, slot].min(jnp.arange(length, dtype=jnp.int32)[None, :])
    begin = first[at, slot].reshape(rows, length // block, block).min(axis=-1)
    number = jnp.arange(length // block, dtype=jnp.int32)[None, :]
    if window:
        begin = jnp.maximum(begin, number * block - window + 1)
    return number - begin // block + 1


def _schedule(segment_ids_BL: jax.Array, block: int, window: int) -> tuple[jax.Array, jax.Array]:
    """(block numbers of all rows sorted by reach, start of each reach in that order), int32."""
    reach = reaches(segment_ids_BL, block, window).reshape(-1)
    num_blocks = segment_ids_BL.shape[1] // block
    begins = jnp.sum(reach[None, :] <= jnp.arange(num_blocks + 1, dtype=jnp.int32)[:, None], axis=1, dtype=jnp.int32)
    return jnp.argsort(reach).astype(jnp.int32), begins


def _scores(
    q_KQh: jax.Array, k_KWh: jax.Array, segments_C: jax.Array, segments_W: jax.Array, limits: BlockLimits
) -> jax.Array:
    """Attention scores (K, G C, W) of a query block; -1e30 for keys that a query does not attend to."""
    block, width = segments_C.shape[0], segments_W.shape[0]
    visible = segments_C[:, None] == segments_W[None, :]
    visible &= in_window(jnp.arange(width - block, width), jnp.arange(width), limits.window)
    scores = capped(_dot(q_KQh, k_KWh, 2, 2).reshape(k_KWh.shape[0], -1, block, width), limits.cap)
    return jnp.where(visible, scores, _MASKED).reshape(k_KWh.shape[0], -1, width)


def _queries(x_BKGLh: jax.Array, row: jax.Array, begin: jax.Array, block: int) -> jax.Array:
    """One block of ``block`` tokens from ``begin`` on in one row of x: (K, G C, h)."""
    _, heads, groups, _, width = x_BKGLh.shape
    part = lax.dynamic_slice(x_BKGLh, (row, 0, 0, begin, 0), (1, heads, groups, block, width))
    return part.reshape(heads, groups * block, width)


def _keys(x_BKLh: jax.Array, row: jax.Array, begin: jax.Array, size: int) -> jax.Array:
    _, heads, _, width = x_BKLh.shape
    return lax.dynamic_slice(x_BKLh, (row, 0, begin, 0), (1, heads, size, width))[0]


def _segments(segment_ids_BL: jax.Array, row: jax.Array, begin: jax.Array, size: int) -> jax.Array:
    return lax.dynamic_slice(segment_ids_BL, (row, begin), (1, size))[0]


def _run(
    q_BKGLh: jax.Array, k_BKLh: jax.Array, v_BKLh: jax.Array, segment_ids_BL: jax.Array, limits: BlockLimits
) -> tuple[jax.Array, jax.Array]:
    """(attention output (B, K, G, L, h), log-sum-exp of the scores (B, K, G, L, 1)), float32."""
    rows, heads, groups, length, width = q_BKGLh.shape
    block = limits.block
    order, begins = _schedule(segment_ids_BL, block, limits.window)

    def turn(n: jax.Array, carry: tuple[jax.Array, jax.Array], reach: int) -> tuple[jax.Array, jax.Array]:
        out, lse = carry
        row, index = order[n] // (length // block), order[n] % (length // block)
        begin, first = index * block, (index + 1 - reach) * block
        scores = _scores(
            _queries(q_BKGLh, row, begin, block),
            _keys(k_BKLh, row, first, reach * block),
            _segments(segment_ids_BL, row, begin, block),
            _segments(segment_ids_BL, row, first, reach * block),
            limits,
        )
        top = jnp.max(scores, axis=-1, keepdims=True)
        weights = jnp.exp(scores - top)
        total = jnp.sum(weights, axis=-1, keepdims=True)
        mixed = _dot(weights.astype(v_BKLh.dtype), _keys(v_BKLh, row, first, reach * block), 2, 1) / total
        shape = (1, heads, groups, block)
        at = (row, 0, 0, begin, 0)
        return (
            lax.dynamic_update_slice(out, mixed.reshape(*shape, width), at),
            lax.dynamic_update_slice(lse, (top + jnp.log(total)).reshape(*shape, 1), at),
        )

    carry = (
        jnp.zeros((rows, heads, groups, length, width), jnp.float32),
        jnp.zeros((rows, heads, groups, length, 1), jnp.float32),
    )
    for reach in range(1, length // block + 1):
        carry = lax.fori_loop(begins[reach - 1], begins[reach], partial(turn, reach=reach), carry)
    return carry


def _gradients(
    q_BKGLh: jax.Array,
    k_BKLh: jax.Array,
    v_BKLh: jax.Array,
    segment_ids_BL: jax.Array,
    lse: jax.Array,
    g_BKGLh: jax.Array,
    delta: jax.Array,
    limits: BlockLimits,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients of q (B, K, G, L, h) and, transposed, of k and v (B, K, h, L), float32.
    g: gradient of the output; lse: log-sum-exp of the scores; delta: sum over features of g times output."""
    _, heads, groups, length, width = q_BKGLh.shape
    block, cap = limits.block, limits.cap
    order, begins = _schedule(segment_ids_BL, block, limits.window)
    dtype = q_BKGLh.dtype
    rounds = dtype != jnp.float32

    def turn(
        n: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array], reach: int
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        dq, dk, dv = carry
        row, index = order[n] // (length // block), order[n] % (length // block)
        begin, first = index * block, (index + 1 - reach) * block
        q, g = _queries(q_BKGLh, row, begin, block), _queries(g_BKGLh, row, begin, block)
        k, v = _keys(k_BKLh, row, first, reach * block), _keys(v_BKLh, row, first, reach * block)
        queries_of = _segments(segment_ids_BL, row, begin, block)
        scores = _scores(q, k, queries_of, _segments(segment_ids_BL, row, first, reach * block), limits)
        weights = jnp.exp(scores - _queries(lse, row, begin, block))
        slopes = weights * (_dot(g, v, 2, 2) - _queries(delta, row, begin, block))
        slopes = (slopes * (1 - jnp.clip(scores / cap, -1, 1) ** 2) if cap else slopes).astype(dtype)
        part = _dot(slopes, k, 2, 1).reshape(1, heads, groups, block, width)
        at, size = (row, 0, 0, first), (1, heads, width, reach * block)
        dk_part = _dot(transposed(q, rounds), slopes, 2, 1)[None]
        dv_part = _dot(transposed(g, rounds), weights.astype(dtype), 2, 1)[None]
        return (
            lax.dynamic_update_slice(dq, part, (row, 0, 0, begin, 0)),
            lax.dynamic_update_slice(dk, lax.dynamic_slice(dk, at, size) + dk_part, at),
            lax.dynamic_update_slice(dv, lax.dynamic_slice(dv, at, size) + dv_part, at),
        )

    key_shape = (*k_BKLh.shape[:2], width, length)
    carry = (
        jnp.zeros(q_BKGLh.shape, jnp.float32),
        jnp.zeros(key_shape, jnp.float32),
        jnp.zeros(key_shape, jnp.float32),
    )
    for reach in range(1, length // block + 1):
        carry = lax.fori_loop(begins[reach - 1], begins[reach], partial(turn, reach=reach), carry)
    return carry


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attention(
    q_BLHh: jax.Array, k_BLKh: jax.Array, v_BLKh: jax.Array, segment_ids_BL: jax.Array, limits: BlockLimits
) -> jax.Array:
    return _forward(q_BLHh, k_BLKh, v_BLKh, segment_ids_BL, limits)[0]


def _split_heads(q_BLHh: jax.Array, num_kv_heads: int) -> jax.Array:
    """Reshape queries (B, L, H, h) to (B, K, G, L, h): heads grouped by their key head."""
    return grouped(q_BLHh, num_kv_heads).transpose(0, 2, 3, 1, 4)


def _join_heads(x_BKGLh: jax.Array) -> jax.Array:
    """Reshape (B, K, G, L, h) to (B, L, H, h); inverse of ``_split_heads``."""
    rows, heads, groups, length, width = x_BKGLh.shape
    return x_BKGLh.transpose(0, 3, 1, 2, 4).reshape(rows, length, heads * groups, width)


def _forward(
    q_BLHh: jax.Array, k_BLKh: jax.Array, v_BLKh: jax.Array, segment_ids_BL: jax.Array, limits: BlockLimits
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    q = _split_heads(q_BLHh * q_BLHh.shape[-1] ** -0.5, k_BLKh.shape[2])
    k, v = k_BLKh.swapaxes(1, 2), v_BLKh.swapaxes(1, 2)
    out, lse = _run(q, k, v, segment_ids_BL, limits)
    out_BLHh = _join_heads(out).astype(q_BLHh.dtype)
    return out_BLHh, (q, k, v, segment_ids_BL, out_BLHh, lse)


def _backward(limits: BlockLimits, saved: tuple[jax.Array, ...], g_BLHh: jax.Array) -> tuple[jax.Array | None, ...]:
    q, k, v, segment_ids_BL, out_BLHh, lse = saved
    # Summed before the heads are split: reading across that transposition costs more than the sum.
    delta = jnp.sum(g_BLHh.astype(jnp.float32) * out_BLHh.astype(jnp.float32), axis=-1, keepdims=True)
    g, delta = (_split_heads(x, k.shape[1]) for x in (g_BLHh, delta))
    dq, dk, dv = _gradients(q, k, v, segment_ids_BL, lse, g, delta, limits)
    dq_BLHh = _join_heads(dq) * q.shape[-1] ** -0.5
    return dq_BLHh.astype(q.dtype), *(d.transpose(0, 3, 1, 2).astype(k.dtype) for d in (dk, dv)), None


_attention.defvjp(_forward, _backward)


def skipping(
    q_BLHh: jax.Array,
    k_BLKh: jax.Array,
    v_BLKh: jax.Array,
    segment_ids_BL: jax.Array,
    limits: Limits = NO_LIMITS,
    *,
    block: int = BLOCK,
) -> jax.Array:
    """`interface.Attention` by blocks of ``block`` tokens, for rows of any length (padded inside); one CPU device."""
    length = q_BLHh.shape[1]
    pad = -length % block
    if pad:
        # The padding is a document of its own, which no token attends to.
        q_BLHh, k_BLKh, v_BLKh = (jnp.pad(x, ((0, 0), (0, pad), (0, 0), (0, 0))) for x in (q_BLHh, k_BLKh, v_BLKh))
        segment_ids_BL = jnp.pad(segment_ids_BL, ((0, 0), (0, pad)), constant_values=-1)
    return _attention(q_BLHh, k_BLKh, v_BLKh, segment_ids_BL, BlockLimits(block, limits.window, limits.cap))[:, :length]
