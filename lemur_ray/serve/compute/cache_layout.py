"""Memory layouts of the cache with their attention: three implementations of one interface, chosen by the platform.

Blocks, tables and ``Place`` are the same for all, so nothing else of the engine depends on the layout. Every array of a
pool has its blocks on the first axis: ``attention.copy_block`` and ``attention.block_bytes`` apply to all of them."""

import logging
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute import attention
from lemur_ray.serve.compute.attention import BLOCK, Cache, LayerCache, Place, block_bytes
from lemur_ray.serve.compute.devices import AXIS
from lemur_ray.serve.compute.invariant import Arithmetic
from lemur_ray.serve.compute.paged_cache import Paged, unsupported_reason
from lemur_ray.serve.config import EngineOptions

log = logging.getLogger(__name__)


class CacheLayout(Protocol):
    """How a layer's pool is laid out, written and attended to. Hashable: a static argument of compiled programs."""

    @property
    def cut(self) -> PartitionSpec:
        """Partition of a pool over devices: along its kv heads."""

    def allocate(self, config: ModelConfig, num_blocks: int, dtype: Any) -> Cache:
        """An empty pool of ``num_blocks`` blocks for each layer, including scrap block 0."""

    def write(self, cache: Any, k_TKh: jax.Array, v_TKh: jax.Array, place: Place) -> Any:
        """The pool of a layer after writing the new keys (rotated) and values; padding goes to block 0."""

    def attend(
        self, cache: Any, q_RKGMh: jax.Array, place: Place, how: Arithmetic, window: int = 0, cap: float = 0.0
    ) -> jax.Array:
        """Attention of each query to its own sequence, (R, K, G, M, h) float32, with the arguments of
        ``attention.attend``. Results of padding are undefined, but finite."""


@dataclass(frozen=True)
class Plain:
    """The layout of ``attention.py``, in plain XLA, for any platform."""

    cut = attention.CUT
    allocate = staticmethod(attention.allocate)
    write = staticmethod(attention.write)
    attend = staticmethod(attention.attend)


PLAIN = Plain()
_LANES = 16
"""Head widths of the kernel for CPUs are multiples of it."""


def _attend_natively(
    cache: LayerCache, q_RKGMh: jax.Array, place: Place, how: Arithmetic, window: int = 0, cap: float = 0.0
) -> jax.Array:
    """As ``attention.attend``, but bit-equal for any number of rows; ``how`` has no effect."""
    rows, kv_heads, groups, length, width = q_RKGMh.shape
    q_RKQh = q_RKGMh.reshape(rows, kv_heads, groups * length, width)
    if cache.k.dtype == jnp.uint16:
        q_RKQh = q_RKQh.astype(jnp.bfloat16)
    q_RKQh = (q_RKQh * width**-0.5).astype(jnp.float32)
    call = jax.ffi.ffi_call(f"lemur_attention_{cache.k.dtype.name}", jax.ShapeDtypeStruct(q_RKQh.shape, jnp.float32))
    out: jax.Array = call(q_RKQh, *cache, *place, length=np.int64(length), window=np.int64(window), cap=np.float32(cap))
    return out.reshape(q_RKGMh.shape)


@dataclass(frozen=True)
class Native(Plain):
    """The pool of ``Plain``, with attention by the C++ kernel for CPUs (``cpu/attention.cc``)."""

    attend = staticmethod(_attend_natively)


@dataclass(frozen=True)
class ByToken:
    """Two arrays (blocks, BLOCK, K h) per layer, a row of all heads for each token, with attention in plain XLA: for
    TPUs, whose compiler converts the whole pool of ``Plain`` to another layout and back for every write."""

    cut = PartitionSpec(None, None, AXIS)
    attend = staticmethod(attention.attend)

    def allocate(self, config: ModelConfig, num_blocks: int, dtype: Any) -> Cache:
        shape = (num_blocks, BLOCK, config.num_kv_heads * config.head_dim)
        return tuple(LayerCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(config.num_layers))

    def write(self, cache: LayerCache, k_TKh: jax.Array, v_TKh: jax.Array, place: Place) -> LayerCache:
        at, num_tokens = attention.targets(place, len(k_TKh)), len(k_TKh)
        written = [
            pool.at[at].set(x.reshape(num_tokens, -1).astype(pool.dtype), mode="promise_in_bounds")
            for pool, x in zip(cache, (k_TKh, v_TKh), strict=True)
        ]
        return LayerCache(*written)


def layout_for(config: ModelConfig, dtype: Any, platform: str, native: bool = False) -> CacheLayout:
    """The layout for a platform. On "tpu" ``Paged``, or ``ByToken`` if the kernel does not support the model. Elsewhere
    with ``native`` ``Native`` (the C++ kernel for CPUs), or ``PLAIN`` if that does not support the model; else
    ``PLAIN``. A kernel that is not used is logged as a warning. config: the model with the heads of one device."""
    if platform != "tpu":
        if not native:
            return PLAIN
        if config.head_dim % _LANES:
            log.warning(
                "attention without the kernel for CPUs: head_dim %d is no multiple of %d", config.head_dim, _LANES
            )
            return PLAIN
        return Native()
    if why := unsupported_reason(config, dtype):
        log.warning("attention without the kernel for TPU: %s", why)
        return ByToken()
    return Paged()


def allocate(layout: CacheLayout, config: ModelConfig, num_blocks: int, dtype: Any, *, scanned: bool) -> Cache:
    """The empty pools of a layout: one of ``num_blocks`` blocks for each layer, or if ``scanned`` a single one with the
    blocks of all layers, layer after layer."""
    if not scanned:
        return layout.allocate(config, num_blocks, dtype)
    return layout.allocate(replace(config, num_layers=1), config.num_layers * num_blocks, dtype)


def pool_size(config: ModelConfig, options: EngineOptions, parts: int = 1) -> tuple[int, int]:
    """(blocks in the table of a sequence of full length, blocks of the whole pool including scrap block 0).
    The pool is what ``options.cache_bytes`` can hold, but at least one sequence, and at most twice what all slots can
    fill. parts: devices."""
    width = -(-min(options.context or config.max_seq_len, config.max_seq_len) // BLOCK)
    fitting = options.cache_bytes // block_bytes(config, options.cache_dtype, parts)
    return width, 1 + max(width, min(fitting, 2 * options.max_slots * width))
