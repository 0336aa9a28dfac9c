"""Causal attention over packed documents on TPU: jax's splash kernel, which skips blocks above the diagonal."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax

LANES = 128
"""Width of a TPU vector register: the tokens of a block and the features of a head must be multiples of it."""
BLOCK = 512
"""Maximum number of tokens in a block."""


def unfit(length: int, head_dim: int) -> str:
    """Reason why the kernel does not support this row length and head width; "" if it does."""
    if length % LANES:
        return f"splash attention needs rows of a multiple of {LANES} tokens, got {length}"
    if head_dim % LANES:
        return f"splash attention needs heads of a multiple of {LANES} features, got {head_dim}"
    return ""


def block_size(length: int) -> int:
    """Tokens per block: the largest power of two up to BLOCK that divides the length."""
    size = BLOCK
    while length % size:
        size //= 2
    return size


@lru_cache(maxsize=8)
def _kernel(heads: int, length: int, interpret: bool) -> Any:
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    size = block_size(length)
    blocks = kernels.BlockSizes(
        block_q=size, block_kv=size, block_kv_compute=size, block_q_dkv=size, block_kv_dkv=size,
        block_kv_dkv_compute=size, use_fused_bwd_kernel=True,
    )  # fmt: skip
    mask = masks.MultiHeadMask([masks.CausalMask((length, length)) for _ in range(heads)])
    with jax.ensure_compile_time_eval():
        return kernels.make_splash_mha(
            mask, block_sizes=blocks, head_shards=1, q_seq_shards=1, residual_checkpoint_name="attention",
            interpret=interpret,
        )  # fmt: skip


def splash(
    q_BLHh: jax.Array, k_BLKh: jax.Array, v_BLKh: jax.Array, segment_ids_BL: jax.Array, *, interpret: bool = False
) -> jax.Array:
    """Causal attention of q (B, L, H, h) to k, v (B, L, K, h) with equal segment ids (B, L): (B, L, H, h) as q's dtype.

    The kernel's output and log-sum-exp are named "attention" for remat policies. interpret: run it anywhere, slowly.
    """
    from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import SegmentIds

    kernel = _kernel(q_BLHh.shape[2], q_BLHh.shape[1], interpret)
    q, k, v = (x.swapaxes(1, 2) for x in (q_BLHh * q_BLHh.shape[-1] ** -0.5, k_BLKh, v_BLKh))
    segments = SegmentIds(segment_ids_BL, segment_ids_BL)
    return jax.vmap(kernel)(q, k, v, segments).swapaxes(1, 2).astype(q_BLHh.dtype)
