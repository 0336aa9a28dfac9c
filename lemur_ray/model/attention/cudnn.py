"""Causal attention over packed documents on GPU: cuDNN's fused kernel, called through jax.nn.

cuDNN supports causal masks but no segment ids, so these are passed as a mask.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

MAX_HEAD_DIM = 128
"""Maximum number of features of a head that the kernel supports."""


def unfit(head_dim: int, dtype: Any, cap: float = 0.0) -> str:
    """Reason why the kernel does not support heads of this width and dtype or a soft cap; "" if it does."""
    if cap:
        return "cuDNN attention has no soft cap of scores"
    if jnp.dtype(dtype) not in (jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16)):
        return f"cuDNN attention needs bfloat16 or float16, got {jnp.dtype(dtype).name}"
    if head_dim % 8 or head_dim > MAX_HEAD_DIM:
        return f"cuDNN attention needs heads of a multiple of 8 up to {MAX_HEAD_DIM} features, got {head_dim}"
    return ""


def cudnn(
    q_BLHh: jax.Array,
    k_BLKh: jax.Array,
    v_BLKh: jax.Array,
    segment_ids_BL: jax.Array,
    *,
    window: int = 0,
    cap: float = 0.0,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> jax.Array:
    """Causal attention of q (B, L, H, h) to k, v (B, L, K, h) with equal segment ids (B, L): (B, L, H, h) as q's dtype.

    window: as in ``dispatch.attention``; cap: must be 0. implementation: "xla" computes the same on any platform, with
    all scores in memory.
    """
    assert not cap, "see unfit"
    same = segment_ids_BL[:, None, :, None] == segment_ids_BL[:, None, None, :]
    return jax.nn.dot_product_attention(
        q_BLHh,
        k_BLKh,
        v_BLKh,
        mask=same,
        is_causal=True,
        implementation=implementation,
        local_window_size=(window - 1, 0) if window else None,
    )
