"""Attention over the paged KV cache, a pool of blocks of keys and values, in plain XLA.

A sequence is a table of block ids, assigned by ``engine.block_cache``. Every query iterates over the blocks of its
sequence with a running softmax, so that blocks past its position add exact zeros and the result does not depend on what
else is computed at the time. Block 0 is scrap: padding is written there. Knows nothing of requests.

Legend: R rows (sequences), M new tokens of a row, T = R * M, K kv heads, G query heads of one kv head, h head width."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from lemur_ray.config import ModelConfig
from lemur_ray.model.attention.oracle import capped, in_window
from lemur_ray.model.matmul import sum_dtype
from lemur_ray.serve.compute.devices import AXIS
from lemur_ray.serve.compute.invariant import Arithmetic, row_sum, tiled_queries

BLOCK = 128
"""Tokens of one block, and keys of one step of the running softmax."""

_MASKED = -1e30


class LayerCache(NamedTuple):
    """Cached keys (after the rotary embedding) and values of one layer; bfloat16 is stored as its bits, in uint16.
    XLA writes into an array of bfloat16 on a CPU by converting all of it to float32 and back."""

    k: jax.Array
    """(blocks, K, h, BLOCK): the layout in which products with a single query are fastest on CPU"""
    v: jax.Array
    """(blocks, K, BLOCK, h)"""


Cache = tuple[Any, ...]
"""The pools of all layers, or one pool of them all; its type depends on the ``CacheLayout``: here ``LayerCache``."""

CUT: P = P(None, AXIS)
"""Partition of the pools over devices: along the kv heads."""

Ints = Any
"""An int32 array: numpy's on the host, jax's inside a program."""


class Place(NamedTuple):
    """Destination of the new tokens of a step: block ids of each row's sequence, position of its first new token, and
    number of its new tokens."""

    tables: Ints
    """(R, blocks of a sequence) int32 block ids"""
    starts: Ints
    """(R,) position of a row's first new token in its sequence, from 0"""
    counts: Ints
    """(R,) tokens of a row without padding; 0: the row is padding"""
    num_rows: Ints
    """Scalar; rows from here on are padding and are not computed"""


def allocate(config: ModelConfig, num_blocks: int, dtype: Any = jnp.float32) -> Cache:
    """Zeroed pools, one for each layer, of ``num_blocks`` blocks with scrap block 0. dtype: of keys and values."""
    k = (num_blocks, config.num_kv_heads, config.head_dim, BLOCK)
    v = (num_blocks, config.num_kv_heads, BLOCK, config.head_dim)
    stored = jnp.uint16 if jnp.dtype(dtype) == jnp.bfloat16 else dtype
    return tuple(LayerCache(jnp.zeros(k, stored), jnp.zeros(v, stored)) for _ in range(config.num_layers))


def to_stored(x: jax.Array, pool: jax.Array) -> jax.Array:
    """Convert keys or values to the dtype in which ``pool`` stores them."""
    if pool.dtype != jnp.uint16:
        return x.astype(pool.dtype)
    return lax.bitcast_convert_type(x.astype(jnp.bfloat16), jnp.uint16)


def from_stored(x: jax.Array) -> jax.Array:
    """Convert stored keys or values back: bits in uint16 to bfloat16, others unchanged."""
    return lax.bitcast_convert_type(x, jnp.bfloat16) if x.dtype == jnp.uint16 else x


def block_bytes(config: ModelConfig, dtype: Any = jnp.float32, parts: int = 1) -> int:
    """Bytes of the keys and values of one block, over all layers and ``parts`` devices together. If there are more
    devices than kv heads, each device has a copy of one head, and every copy counts. dtype: of keys and values."""
    heads = max(config.num_kv_heads, parts)
    return 2 * config.num_layers * heads * config.head_dim * BLOCK * jnp.dtype(dtype).itemsize


def targets(place: Place, num_tokens: int) -> tuple[jax.Array, jax.Array]:
    """Block id, and offset in the block, of each of ``num_tokens`` (T) new tokens, (T,) int32. Padding: block 0."""
    offset_M = jnp.arange(num_tokens // place.starts.shape[0])
    position_RM = place.starts[:, None] + offset_M
    block_RM = jnp.take_along_axis(place.tables, position_RM // BLOCK, axis=1, mode="clip")
    block_T = jnp.where(offset_M < place.counts[:, None], block_RM, 0).reshape(-1)
    return block_T, (position_RM % BLOCK).reshape(-1)


def write(cache: LayerCache, k_TKh: jax.Array, v_TKh: jax.Array, place: Place) -> LayerCache:
    """Return the layer's cache with the new keys and values of all rows in their blocks; padding goes to block 0.
    k_TKh, v_TKh: keys (after the rotary embedding) and values of the T new tokens."""
    block_T, offset_T = targets(place, k_TKh.shape[0])
    return LayerCache(
        cache.k.at[block_T, :, :, offset_T].set(to_stored(k_TKh, cache.k), mode="promise_in_bounds"),
        cache.v.at[block_T, :, offset_T].set(to_stored(v_TKh, cache.v), mode="promise_in_bounds"),
    )


def attend(
    cache: LayerCache, q_RKGMh: jax.Array, place: Place, how: Arithmetic, window: int = 0, cap: float = 0.0
) -> jax.Array:
    """Attention of each query to its own sequence, up to and including its own position: (R, K, G, M, h) in
    ``sum_dtype`` of the cache. With ``how.one_by_one``, a loop computes each row at its own length and no padding;
    otherwise rows are batched. window: a query attends only to that many last positions, and blocks before them are not
    read; 0: to all. cap: limit of the attention scores, which are squashed by tanh; 0: none. q_RKGMh: queries after the
    rotary embedding, (R, K, G, M, h). cache: with pools of three axes, those of ``cache_layout.ByToken``."""
    rows, kv_heads, groups, length, width = q_RKGMh.shape
    dtype = jnp.bfloat16 if cache.k.dtype == jnp.uint16 else cache.k.dtype
    q_RKQh = q_RKGMh.astype(dtype).reshape(rows, kv_heads, groups * length, width) * width**-0.5
    sums = sum_dtype(q_RKQh)
    offset_Q = jnp.tile(jnp.arange(length), groups)

    def row(q: jax.Array, table: jax.Array, start: jax.Array, count: jax.Array) -> jax.Array:
        position_Q = start + offset_Q

        def step(i: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            highest, total, mixed = carry
            k = from_stored(lax.dynamic_index_in_dim(cache.k, table[i], keepdims=False))
            v = from_stored(lax.dynamic_index_in_dim(cache.v, table[i], keepdims=False))
            if cache.k.ndim == 3:
                k, v = (x.reshape(BLOCK, kv_heads, width).transpose(1, *axes) for x, axes in ((k, (2, 0)), (v, (0, 2))))
            score = tiled_queries(partial(jnp.einsum, "kqh,khs->kqs", preferred_element_type=sums), q, k, how.tile)
            visible = in_window(position_Q, i * BLOCK + jnp.arange(BLOCK), window)
            score = jnp.where(visible, capped(score, cap), _MASKED)
            new = jnp.maximum(highest, score.max(-1, keepdims=True))
            weight, keep = jnp.exp(score - new), jnp.exp(highest - new)
            mix = partial(jnp.einsum, "kqs,ksh->kqh", preferred_element_type=sums)
            mixed = mixed * keep + tiled_queries(mix, weight.astype(v.dtype), v, how.tile)
            return new, total * keep + row_sum(weight), mixed

        empty = jnp.zeros((kv_heads, groups * length, 1), sums)
        begin = (empty + _MASKED, empty, jnp.zeros((kv_heads, groups * length, width), sums))
        if not how.one_by_one:  # of constants XLA would fill those of all unrolled layers first, and keep them
            begin = jax.tree.map(lambda x: x + 0 * q[..., :1].astype(x.dtype), begin)
        num_blocks = jnp.maximum((start + count + BLOCK - 1) // BLOCK, 1)
        first = jnp.maximum(start - window + 1, 0) // BLOCK if window else 0
        _, total, mixed = lax.fori_loop(first, num_blocks, step, begin)
        return mixed / total

    if how.one_by_one:

        def body(r: jax.Array, out: jax.Array) -> jax.Array:
            q = lax.dynamic_index_in_dim(q_RKQh, r, keepdims=False)
            mixed = row(q, place.tables[r], place.starts[r], place.counts[r])
            return lax.dynamic_update_index_in_dim(out, mixed, r, 0)

        out = lax.fori_loop(0, place.num_rows, body, jnp.zeros(q_RKQh.shape, sums))
    else:
        out = jax.vmap(row)(q_RKQh, place.tables, place.starts, place.counts)
    return out.reshape(q_RKGMh.shape)


def copy_block(cache: Cache, source: jax.Array, target: jax.Array, *, layers: int = 1) -> Cache:
    """The cache after block ``source`` is copied to block ``target`` (scalar ids) in all layers. layers: number of
    layers that share a pool, their blocks layer after layer; 1: every layer has a pool of its own."""

    def copied(pool: jax.Array) -> jax.Array:
        by_layer = pool.reshape(layers, -1, *pool.shape[1:])
        block = lax.dynamic_index_in_dim(by_layer, source, axis=1)
        return lax.dynamic_update_slice_in_dim(by_layer, block, target, 1).reshape(pool.shape)

    return jax.tree.map(copied, cache)
