"""Causal attention over packed documents on GPU: cuDNN's fused kernel, called through jax.nn.

cuDNN knows causal masks but no segment ids, so these are handed over as a mask of their own. Knows nothing of other
platforms.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

MAX_HEAD_DIM = 128


def unfit(head_dim: int, dtype: Any) -> str:
    """Why the kernel cannot take heads of this width and dtype; "" where it can."""
    if jnp.dtype(dtype) not in (jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16)):
        return f"cuDNN attention needs bfloat16 or float16, found {jnp.dtype(dtype).name}"
    if head_dim % 8 or head_dim > MAX_HEAD_DIM:
        return f"cuDNN attention needs heads of a multiple of 8 up to {MAX_HEAD_DIM} features, found {head_dim}"
    return ""


def cudnn(
    q_BLHh: jax.Array,
    k_BLKh: jax.Array,
    v_BLKh: jax.Array,
    segment_ids_BL: jax.Array,
    *,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> jax.Array:
    """q (B, L, H, h) on k, v (B, L, K, h) inside equal segment ids (B, L): (B, L, H, h) in q's dtype.

    implementation: "xla" computes the same call anywhere, with every score in memory.
    """
    same = segment_ids_BL[:, None, :, None] == segment_ids_BL[:, None, None, :]
    return jax.nn.dot_product_attention(
        q_BLHh, k_BLKh, v_BLKh, mask=same, is_causal=True, implementation=implementation
    )
