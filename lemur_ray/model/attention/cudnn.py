"""Causal attention over packed documents on GPU, by cuDNN's fused kernels.

``packed_rows`` gives the kernel the length and the first token of each document, so that it computes no block of
another document and no array has L x L elements. ``masked`` is for GPUs before Hopper, whose kernels take a mask of
(L, L) for each row. Nothing here has run on a GPU of this project.

Legend: B rows, L length, H query heads, K key/value heads, h head width, M = ``Limits.max_documents``."""

import math
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from lemur_ray.model.attention.interface import NO_LIMITS, Limits
from lemur_ray.model.remat import named

HOPPER: tuple[int, int] = (9, 0)
"""Minimum compute capability of packed rows."""
PACKED_HEAD_DIM, MASKED_HEAD_DIM = 256, 128
"""Maximum features of a head, on Hopper and before (the limits that jax checks)."""
MASKED_LENGTH = 8192
"""Maximum tokens of a row with a mask: 128 MiB of bfloat16 for each row of a microbatch."""
_MOST_ELEMENTS = 2**31
"""Exclusive maximum of elements of q, whose offsets are int32."""


def unsupported_reason(head_dim: int, dtype: Any, cap: float = 0.0, capability: tuple[int, int] = HOPPER) -> str:
    """Reason why `packed_rows` does not support heads of ``head_dim`` features, a dtype, a cap (`Limits`) or a GPU; ""
    if it does. capability: compute capability of the GPU (major, minor)."""
    if cap:
        return "cuDNN attention has no soft cap of scores"
    if jnp.dtype(dtype) not in (jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16)):
        return f"cuDNN attention needs bfloat16 or float16, got {jnp.dtype(dtype).name}"
    if head_dim % 8 or head_dim > PACKED_HEAD_DIM:
        return f"cuDNN attention needs heads of a multiple of 8 up to {PACKED_HEAD_DIM} features, got {head_dim}"
    if capability < HOPPER:
        return "packed rows of cuDNN need compute capability 9.0, got {}.{}".format(*capability)
    return ""


class Documents(NamedTuple):
    """The documents of all rows in the form that cuDNN takes, (B, M) for M documents in a row: lengths, and offsets in
    q and in k and v. Those of length 0 are last."""

    lengths: jax.Array
    """(B, M) int32, in tokens; 0 where there are fewer documents. Read as one array of B x M."""
    query_offsets: jax.Array
    """(B, M + 1) int32: index of a document's first element in the flat q, and the size of q after the last."""
    key_offsets: jax.Array
    """As ``query_offsets``, in k and v; jax 0.10.2 itself scales them by H instead of K (jax-ml/jax#39521)."""


def documents_of(q_BLHh: jax.Array, k_BLKh: jax.Array, segment_ids_BL: jax.Array, most: int) -> Documents:
    """Documents of q (B, L, H, h) and k (B, L, K, h): runs of equal segment ids (B, L), of which padding is one. most:
    maximum number in a row (M); further ones are left out."""
    rows, length = segment_ids_BL.shape
    begins = segment_ids_BL[:, 1:] != segment_ids_BL[:, :-1]
    number_BL = jnp.pad(jnp.cumsum(begins, axis=1, dtype=jnp.int32), ((0, 0), (1, 0)))
    before = number_BL[:, None, :] < jnp.arange(most + 1)[:, None]  # a fused sum, no array of (B, M, L)
    firsts = jnp.sum(before, axis=2, dtype=jnp.int32)
    lengths = jnp.diff(firsts).reshape(-1)
    starts = (firsts[:, :-1] + jnp.arange(rows, dtype=jnp.int32)[:, None] * length).reshape(-1)
    order = jnp.argsort(lengths == 0, stable=True)
    starts = jnp.where(lengths[order] > 0, starts[order], rows * length)
    starts = jnp.pad(starts, (0, rows), constant_values=rows * length).reshape(rows, most + 1)
    token, key_token = math.prod(q_BLHh.shape[2:]), math.prod(k_BLKh.shape[2:])
    return Documents(lengths[order].reshape(rows, most), starts * token, starts * key_token)


def packed_rows(
    q_BLHh: jax.Array, k_BLKh: jax.Array, v_BLKh: jax.Array, segment_ids_BL: jax.Array, limits: Limits = NO_LIMITS
) -> jax.Array:
    """`interface.Attention` for Hopper GPUs and later. Output and log-sum-exp carry the name "attention" for remat
    policies. A row with more than ``limits.max_documents`` documents comes out as NaN: a run checks its corpus before
    it starts. ``limits.cap`` must be 0. Raises ValueError if q has 2**31 elements or more."""
    assert not limits.cap, "see unsupported_reason"
    if q_BLHh.size >= _MOST_ELEMENTS:
        raise ValueError(
            f"cuDNN attention takes fewer than {_MOST_ELEMENTS:,} elements of queries on a device, got "
            f"{q_BLHh.size:,}: use more microbatches (--train.microbatches)"
        )
    most = max(2, limits.max_documents)  # with 1 the kernel would take whole rows
    documents = documents_of(q_BLHh, k_BLKh, segment_ids_BL, most)
    fits = jnp.sum(segment_ids_BL[:, 1:] != segment_ids_BL[:, :-1], axis=1) < most
    gain = jnp.where(fits, 1.0, jnp.nan).astype(q_BLHh.dtype)[:, None, None, None]
    return _kernel(q_BLHh * gain, k_BLKh, v_BLKh, documents, limits.window)


def _options(q_BLHh: jax.Array, window: int) -> dict[str, Any]:
    from jax._src.cudnn.fused_attention_stablehlo import AttentionLayout, MaskType

    return {
        "scale": q_BLHh.shape[-1] ** -0.5, "seed": 0, "dropout_rate": 0.0, "variadic_args": (False, False),
        "mask_type": MaskType.PADDING_CAUSAL, "layout": AttentionLayout.BTNH.value,
        "sliding_window_length": window or None,
    }  # fmt: skip


def _operands(documents: Documents, like: jax.Array) -> tuple[jax.Array, ...]:
    """Operands of jax's primitives after q, k and v: no bias, documents, no page tables."""
    none = jnp.zeros(0, like.dtype)
    lengths, queries, keys = documents
    return none, lengths, lengths, queries, keys, none, none


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _kernel(q: jax.Array, k: jax.Array, v: jax.Array, documents: Documents, window: int) -> jax.Array:
    from jax._src.cudnn.fused_attention_stablehlo import _dot_product_attention_fwd_p as forward

    out: jax.Array = forward.bind(q, k, v, *_operands(documents, q), is_training=False, **_options(q, window))[0]
    return out


def _forward(q: jax.Array, k: jax.Array, v: jax.Array, documents: Documents, window: int) -> tuple[jax.Array, Any]:
    from jax._src.cudnn.fused_attention_stablehlo import _dot_product_attention_fwd_p as forward

    results = forward.bind(q, k, v, *_operands(documents, q), is_training=True, **_options(q, window))
    out, statistics = (named(result, "attention") for result in results)
    return out, (q, k, v, documents, out, statistics)


def _backward(window: int, saved: Any, slope: jax.Array) -> tuple[Any, ...]:
    from jax._src.cudnn.fused_attention_stablehlo import _dot_product_attention_bwd_p as backward

    q, k, v, documents, out, statistics = saved
    operands = (*_operands(documents, q), statistics, out, slope)
    return *backward.bind(q, k, v, *operands, **_options(q, window)), None


_kernel.defvjp(_forward, _backward)


def masked(
    q_BLHh: jax.Array,
    k_BLKh: jax.Array,
    v_BLKh: jax.Array,
    segment_ids_BL: jax.Array,
    limits: Limits = NO_LIMITS,
    *,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> jax.Array:
    """`interface.Attention` with documents as a mask (L, L) for each row. ``limits.cap`` must be 0 (asserted).
    implementation: of ``jax.nn.dot_product_attention``; "xla" runs on any platform, "cudnn" on a GPU."""
    assert not limits.cap, "see unsupported_reason"
    same = segment_ids_BL[:, None, :, None] == segment_ids_BL[:, None, None, :]
    window = (limits.window - 1, 0) if limits.window else None
    return jax.nn.dot_product_attention(
        q_BLHh, k_BLKh, v_BLKh, mask=same, is_causal=True, implementation=implementation, local_window_size=window
    )
