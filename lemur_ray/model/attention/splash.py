"""Causal attention over packed documents on TPU: jax's splash kernel, which skips blocks above the diagonal."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from lemur_ray.model.attention.interface import NO_LIMITS, Limits

LANES = 128
"""Width of a TPU vector register: tokens of a block must be multiples of it, heads are padded to one."""
MIN_HEAD_DIM = 64
"""Minimum features of a head that is worth padding to LANES: the kernel then computes at most twice as much."""
MOST_FUSED_BLOCKS = 8
"""Maximum number of blocks of a row in whose backward pass one kernel computes all gradients. It keeps a gradient of
the queries for each block of keys: 16 GiB for 32 heads of 32,768 tokens, where two kernels take 0.5 (compiled for v5p).
"""


def unsupported_reason(length: int, head_dim: int) -> str:
    """Reason why the kernel does not support this row length and head width; "" if it does."""
    if length % LANES:
        return f"splash attention needs rows of a multiple of {LANES} tokens, got {length}"
    if head_dim < MIN_HEAD_DIM:
        return f"splash attention needs heads of at least {MIN_HEAD_DIM} features, got {head_dim}"
    return ""


def block_size(length: int, most: int = NO_LIMITS.block) -> int:
    """Tokens per block: the largest half, quarter, .. of ``most`` that divides the length, or ``most`` itself."""
    size = most
    while length % size:
        size //= 2
    return size


def is_fused(length: int, size: int) -> bool:
    """Whether one kernel computes all gradients of a row, with fewer operations than two but more memory.
    size: tokens per block."""
    return length // size <= MOST_FUSED_BLOCKS


@lru_cache(maxsize=8)
def _kernel(heads: int, length: int, limits: Limits, interpret: bool) -> Any:
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    size, window = block_size(length, limits.block), limits.window
    fused = is_fused(length, size)
    blocks = kernels.BlockSizes(
        block_q=size, block_kv=size, block_kv_compute=size, block_q_dkv=size, block_kv_dkv=size,
        block_kv_dkv_compute=size, use_fused_bwd_kernel=fused, block_q_dq=None if fused else size,
        block_kv_dq=None if fused else size,
    )  # fmt: skip
    shape = (length, length)
    one = masks.LocalMask(shape, (window - 1, 0), 0) if window else masks.CausalMask(shape)
    mask = masks.MultiHeadMask([one] * heads)
    with jax.ensure_compile_time_eval():
        return kernels.make_splash_mha(
            mask, block_sizes=blocks, head_shards=1, q_seq_shards=1, residual_checkpoint_name="attention",
            interpret=interpret, attn_logits_soft_cap=limits.cap or None,
        )  # fmt: skip


def blocks_computed(length: int, window: int, size: int) -> float:
    """Fraction of a row's (query block, key block) pairs, of ``size`` tokens each, that a causal kernel computes.
    length: tokens of the row; window: most recent tokens that a token attends to, 0: all."""
    num = -(-length // size)
    firsts = (max(0, (i * size - window + 1) // size) if window else 0 for i in range(num))
    return sum(i - first + 1 for i, first in enumerate(firsts)) / num**2


def splash(
    q_BLHh: jax.Array,
    k_BLKh: jax.Array,
    v_BLKh: jax.Array,
    segment_ids_BL: jax.Array,
    limits: Limits = NO_LIMITS,
    *,
    interpret: bool = False,
) -> jax.Array:
    """`interface.Attention` by jax's TPU kernel; output and log-sum-exp carry the name "attention" for remat policies.
    `unsupported_reason` must be empty. interpret: whether to run the kernel in the interpreter of
    pallas, slowly but on any platform."""
    from jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel import SegmentIds

    length, heads, width = q_BLHh.shape[1:]
    kernel = _kernel(heads, length, limits, interpret)
    q, k, v = (x.swapaxes(1, 2) for x in (q_BLHh * width**-0.5, k_BLKh, v_BLKh))
    if missing := -width % LANES:
        q, k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, missing))) for x in (q, k, v))
    segments = SegmentIds(segment_ids_BL, segment_ids_BL)
    return jax.vmap(kernel)(q, k, v, segments)[..., :width].swapaxes(1, 2).astype(q_BLHh.dtype)
