"""How keys and values lie in memory and who attends to them: three ways behind one interface, chosen by the platform.

Blocks, tables and ``Place`` are the same for both, so nothing else of the engine knows which one it has. Every array of
a pool has its blocks in front: ``attention.copy_block`` and ``attention.block_bytes`` hold for both as well.
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
    """A value: it is static in compiled programs. What a layer's pool is made of is its own business."""

    @property
    def cut(self) -> PartitionSpec:
        """How devices share a pool: along its kv heads."""

    def allocate(self, config: ModelConfig, num_blocks: int, dtype: Any) -> Cache:
        """An empty pool of ``num_blocks`` blocks for each layer, the scrap block 0 included."""

    def write(self, cache: Any, k_TKh: jax.Array, v_TKh: jax.Array, place: Place) -> Any:
        """The pool of a layer with the new keys (after the rotation) and values in it; padding goes to block 0."""

    def attend(self, cache: Any, q_RKGMh: jax.Array, place: Place, how: Arithmetic) -> jax.Array:
        """Each query against its own sequence up to its own position: (R, K, G, M, h) float32.

        What padding gets is finite and means nothing.
        """


@dataclass(frozen=True)
class Plain:
    """``attention.py``: XLA alone, on any platform."""

    cut = attention.CUT
    allocate = staticmethod(attention.allocate)
    write = staticmethod(attention.write)
    attend = staticmethod(attention.attend)


PLAIN = Plain()


@dataclass(frozen=True)
class Native(Plain):
    """The same cache, read by the kernel for CPUs."""

    attend = staticmethod(cpu_attention.attend)


def layout_for(config: ModelConfig, dtype: Any, platform: str, native: bool = False) -> CacheLayout:
    """The kernel's layout on "tpu" if the model fits it, otherwise the plain one; says so where it is a makeshift.

    native: there are kernels for this CPU.
    """
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


def pool_size(config: ModelConfig, options: EngineOptions) -> tuple[int, int]:
    """Blocks of a sequence's table and of the whole pool, the scrap block included.

    A sequence always has room, and no more blocks are there than twice what all slots can fill.
    """
    width = -(-min(options.context or config.max_seq_len, config.max_seq_len) // BLOCK)
    fitting = options.cache_bytes // block_bytes(config, options.dtype)
    return width, 1 + max(width, min(fitting, 2 * options.max_slots * width))
