"""``attention.attend`` by the C++ kernel in ``attention.cc``, on the same cache."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.attention import LayerCache, Place
from lemur_ray.serve.compute.invariant import Arithmetic

_LANES = 16


def unfit(config: ModelConfig) -> str:
    """Reason why the kernel does not support a model; empty if it does."""
    return f"head_dim {config.head_dim} is no multiple of {_LANES}" if config.head_dim % _LANES else ""


def attend(
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
