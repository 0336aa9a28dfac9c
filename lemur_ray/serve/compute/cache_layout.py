"""Memory layouts of the cache with their attention: three implementations of one interface, chosen by the platform.

Blocks, tables and ``Place`` are the same for all, so nothing else of the engine depends on the layout. Every array of a
pool has its blocks on the first axis: ``attention.copy_block`` and ``attention.block_bytes`` apply to all of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Protocol

import jax
from jax.sharding import PartitionSpec

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute import attention, cpu_attention
from lemur_ray.serve.compute.attention import BLOCK, Cache, Place, block_bytes
from lemur_ray.serve.compute.invariant import Arithmetic
from lemur_ray.serve.compute.paged_cache import Paged, unfit
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
        """Attention of each query to its own sequence, as ``attention.attend``; undefined, but finite, for padding."""


@dataclass(frozen=True)
class Plain:
    """The layout of ``attention.py``, in plain XLA, for any platform."""

    cut = attention.CUT
    allocate = staticmethod(attention.allocate)
    write = staticmethod(attention.write)
    attend = staticmethod(attention.attend)


PLAIN = Plain()


@dataclass(frozen=True)
class Native(Plain):
    """The pool of ``Plain``, with attention by the C++ kernel for CPUs."""

    attend = staticmethod(cpu_attention.attend)


def layout_for(config: ModelConfig, dtype: Any, platform: str, native: bool = False) -> CacheLayout:
    """``Paged`` on TPU, ``Native`` with CPU kernels (``native``); ``PLAIN`` if the model does not suit the kernel."""
    if platform != "tpu":
        if not native:
            return PLAIN
        if why := cpu_attention.unfit(config):
            log.warning("attention without the kernel for CPUs: %s", why)
            return PLAIN
        return Native()
    if why := unfit(config, dtype):
        log.warning("attention without the kernel for TPU: %s", why)
        return PLAIN
    return Paged()


def pool_size(config: ModelConfig, options: EngineOptions, parts: int = 1) -> tuple[int, int]:
    """Number of blocks in a sequence's table, and in the whole pool, including the scrap block. parts: devices.

    The pool holds at least one sequence, and at most twice what all slots can fill.
    """
    width = -(-min(options.context or config.max_seq_len, config.max_seq_len) // BLOCK)
    fitting = options.cache_bytes // block_bytes(config, options.dtype, parts)
    return width, 1 + max(width, min(fitting, 2 * options.max_slots * width))
