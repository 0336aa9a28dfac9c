"""Attention over pages of cached keys and values on TPU: jax's ragged paged kernel, one page a block of the pool.

The kernel copies only the pages of a row's sequence, asynchronously, from the pool into the chip's fast memory; padding
rows cost nothing. It takes rows of any length in one call, so decoding and prefilling are the same code. Knows nothing
of other platforms.

Legend: R rows (sequences), M new tokens of a row, T = R * M, H = K * G heads, K kv heads, G query heads of one kv head,
h head width."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.attention import BLOCK, Place, targets
from lemur_ray.serve.compute.devices import AXIS
from lemur_ray.serve.compute.invariant import Arithmetic

LANES = 128
"""Width of a vector register, of which head widths are multiples."""
QUERIES = 32
"""New tokens per block of the kernel: a tile of a prompt, or as many rows of a decode step."""
BUFFER_BYTES = 2 * 2**20
"""Largest size of each of the two page buffers in fast memory."""
SCORE_BYTES = 2**19
"""Largest size of one kv head's attention scores for a buffer; the compiler allocates several of that size."""


def unsupported_reason(config: ModelConfig, dtype: Any) -> str:
    """Reason why the TPU kernel does not support a model with this cache dtype; "" if it does."""
    if config.head_dim % LANES:
        return f"the paged kernel needs heads of a multiple of {LANES} features, got {config.head_dim}"
    if config.head_dim > LANES and (config.num_kv_heads > 1 or jnp.dtype(dtype) != jnp.bfloat16):
        return (  # Mosaic loads heads with a stride only where one fills a single register
            f"the paged kernel takes heads of {config.head_dim} features only with 1 kv head of bfloat16 a device, "
            f"got {config.num_kv_heads} of {jnp.dtype(dtype)}"
        )
    if jnp.dtype(dtype) not in (jnp.bfloat16, jnp.float32):
        return f"the paged kernel needs bfloat16 or float32, got {jnp.dtype(dtype)}"
    try:
        heads, _ = heads_at_once(config.num_heads, config.num_kv_heads, dtype)
    except ValueError as error:
        return f"the paged kernel cannot tile {config.num_kv_heads} kv heads of {jnp.dtype(dtype)} ({error})"
    if heads % 8 and heads != config.num_heads:
        return f"the paged kernel cannot cut {config.num_heads} heads of {jnp.dtype(dtype)} into blocks of {heads}"
    return ""


def heads_at_once(num_heads: int, num_kv_heads: int, dtype: Any) -> tuple[int, int]:
    """(query heads, kv heads' keys plus values) in one block of the kernel. dtype: of queries and cache. Raises
    ValueError if the kernel cannot tile them."""
    from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel

    heads, both = kernel.get_min_heads_per_blk(num_heads, 2 * num_kv_heads, jnp.dtype(dtype), jnp.dtype(dtype))
    return int(heads), int(both)


@dataclass(frozen=True)
class Paged:
    """One array (blocks, BLOCK, 2K, h) per layer: of each of K kv heads the rotated keys, then the values."""

    cut = P(None, None, AXIS)

    def allocate(self, config: ModelConfig, num_blocks: int, dtype: Any) -> tuple[jax.Array, ...]:
        """Zeroed pools of ``num_blocks`` blocks, including scrap block 0. Raises ValueError for unsupported shapes."""
        if why := unsupported_reason(config, dtype):
            raise ValueError(why)
        shape = (num_blocks, BLOCK, 2 * config.num_kv_heads, config.head_dim)
        return tuple(jnp.zeros(shape, dtype) for _ in range(config.num_layers))

    def write(self, cache: jax.Array, k_TKh: jax.Array, v_TKh: jax.Array, place: Place) -> jax.Array:
        block_T, offset_T = targets(place, k_TKh.shape[0])
        both = jnp.stack([k_TKh, v_TKh], axis=2).reshape(-1, *cache.shape[2:]).astype(cache.dtype)
        return cache.at[block_T, offset_T].set(both, mode="promise_in_bounds")

    def attend(
        self, cache: jax.Array, q_RKGMh: jax.Array, place: Place, how: Arithmetic, window: int = 0, cap: float = 0.0
    ) -> jax.Array:
        """Attention of each query to its own sequence up to its position: (R, K, G, M, h) float32, 0 for padding.
        Arguments as for ``CacheLayout.attend``."""
        from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel

        rows, kv_heads, groups, length, width = q_RKGMh.shape
        q_THh = q_RKGMh.transpose(0, 3, 1, 2, 4).reshape(rows * length, kv_heads * groups, width)
        table_width = place.tables.shape[1]
        # Every row counts as full, so tokens need not move. Table entries behind a row's last page repeat that page, so
        # that nothing is read from the scrap block.
        last_R = jnp.maximum(place.starts + place.counts - 1, 0) // BLOCK
        tables = jnp.take_along_axis(place.tables, jnp.minimum(jnp.arange(table_width), last_R[:, None]), axis=1)
        num_rows = jnp.maximum(place.num_rows, 1)  # the kernel always reads the first row
        queries = min(QUERIES, rows * length)
        heads = heads_at_once(kv_heads * groups, kv_heads, cache.dtype)[1]
        page_bytes, score_bytes = BLOCK * heads * width * cache.dtype.itemsize, BLOCK * queries * groups * 4
        pages = max(1, min(BUFFER_BYTES // page_bytes, SCORE_BYTES // score_bytes))
        mixed_THh = kernel.ragged_paged_attention(
            q_THh.astype(cache.dtype),
            cache,
            place.starts + length,
            tables,
            jnp.minimum(jnp.arange(rows + 1), num_rows) * length,
            num_rows[None],
            sm_scale=width**-0.5,
            sliding_window=window or None,
            soft_cap=cap or None,
            num_kv_pages_per_block=min(pages, table_width),
            num_queries_per_block=queries,
        )
        real_RM = (jnp.arange(length) < place.counts[:, None]) & (jnp.arange(rows) < num_rows)[:, None]
        mixed = mixed_THh.reshape(rows, length, kv_heads, groups, width).astype(jnp.float32)
        return jnp.where(real_RM[..., None, None, None], mixed, 0.0).transpose(0, 2, 3, 1, 4)
