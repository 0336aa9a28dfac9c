"""Next-token cross-entropy without an array of all logits, with its gradient computed in the forward pass.

Tokens are processed in chunks along the row. For every chunk the logits, the loss and, if differentiated, the gradients
of hidden states and head are computed together, so logits are computed once and never stored. This works because the
loss is a weighted sum: its gradient is known up to one scalar. On a mesh each device does so for its rows and its
vocabulary shard; maxima and sums are reduced over tp, the head's gradient is summed over the rows once, after the last
chunk.

Legend: B rows, L length, D dim, V vocabulary, T tokens of a chunk."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from lemur_ray.model.attention.oracle import capped
from lemur_ray.model.layout import Layout, scattered
from lemur_ray.model.matmul import dot, transposed

CHUNK_ELEMENTS = 4 << 20
"""Maximum number of logits of a chunk on CPU (16 MiB in float32); a chunk has at least one token of every row."""
ACCELERATOR_CHUNK_ELEMENTS = 16 << 20
"""Maximum number of logits of a chunk on accelerators, where each chunk reads and writes the head's gradient."""


class Losses(NamedTuple):
    """Losses of a batch in nats: their weighted sum (differentiable), and that of each token (not differentiable)."""

    total: jax.Array
    """() float32."""
    per_token: jax.Array
    """(B, L) float32, before the weights."""


def chunk_length(rows: int, length: int, vocab: int, platform: str = "cpu") -> int:
    """Tokens per row of a chunk: the largest divisor of ``length``, at least 1, with which ``rows`` rows of ``vocab``
    logits for each token stay within the platform's limit. platform: cpu, or any other for an accelerator."""
    limit = CHUNK_ELEMENTS if platform == "cpu" else ACCELERATOR_CHUNK_ELEMENTS
    most = max(1, limit // (rows * vocab))
    return max(n for n in range(1, length + 1) if length % n == 0 and n <= most)


class _Vocabulary:
    """The vocabulary shard of one device, with maximum and sum over all shards of mesh axis tp."""

    def __init__(self, size: int, split: bool) -> None:
        self.split = split
        self.first = jax.lax.axis_index("tp") * size if split else 0

    def top(self, x: jax.Array) -> jax.Array:
        return jax.lax.pmax(x, "tp") if self.split else x

    def sum(self, x: jax.Array) -> jax.Array:
        return jax.lax.psum(x, "tp") if self.split else x


def _chunk(
    x_TD: jax.Array, head_DV: jax.Array, targets_T: jax.Array, vocabulary: _Vocabulary, cap: float
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """(loss of each token, exponentials of the logits minus their maximum, inverse of their sums, logits), float32."""
    logits = capped(dot(x_TD, head_DV, 1, 0), cap)
    top = vocabulary.top(jnp.max(logits, axis=-1, keepdims=True))
    exponentials = jnp.exp(logits - top)
    total = vocabulary.sum(jnp.sum(exponentials, axis=-1, keepdims=True))
    ids = targets_T - vocabulary.first
    picked = jnp.take_along_axis(logits, jnp.clip(ids, 0, logits.shape[1] - 1)[:, None], axis=-1)[:, 0]
    picked = vocabulary.sum(jnp.where((ids >= 0) & (ids < logits.shape[1]), picked, 0.0))
    return jnp.log(total[:, 0]) + top[:, 0] - picked, exponentials, 1.0 / total, logits


def _split(array: jax.Array, size: int) -> jax.Array:
    """Cut (B, L, ...) along the row into chunks of ``size`` tokens: (L / size, B * size, ...)."""
    rows, length = array.shape[:2]
    parts = array.reshape(rows, length // size, size, *array.shape[2:])
    return parts.swapaxes(0, 1).reshape(length // size, rows * size, *array.shape[2:])


def _join(parts: jax.Array, rows: int) -> jax.Array:
    """Join chunks (L / size, B * size, ...) to (B, L, ...); inverse of ``_split``."""
    num, tokens = parts.shape[:2]
    out = parts.reshape(num, rows, tokens // rows, *parts.shape[2:]).swapaxes(0, 1)
    return out.reshape(rows, -1, *parts.shape[2:])


def cross_entropy(
    x_BLD: jax.Array,
    head_DV: jax.Array,
    targets_BL: jax.Array,
    weights_BL: jax.Array,
    operand_dtype: Any = None,
    layout: Layout | None = None,
    cap: float = 0.0,
) -> Losses:
    """Sum over tokens of weight x (log-sum-exp of the logits - logit of the target). x: hidden states; head: (D, V);
    targets: integer below V; weights: float32. Operands of the products are rounded to ``operand_dtype``, the dtype of
    x by default; logits are accumulated and reduced in float32. Gradients flow from ``total`` to x and head. layout:
    where x (split along the sequence), head and batch lie. cap: logits become cap x tanh(logit / cap); 0: they stay."""
    dtype = jnp.dtype(operand_dtype or x_BLD.dtype)
    return _cross_entropy(x_BLD, head_DV, targets_BL, weights_BL, _Static(dtype, layout or Layout(), cap))


class _Static(NamedTuple):
    """Static arguments of ``cross_entropy``."""

    operand_dtype: Any
    layout: Layout
    cap: float


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _cross_entropy(
    x_BLD: jax.Array, head_DV: jax.Array, targets_BL: jax.Array, weights_BL: jax.Array, how: _Static
) -> Losses:
    operand_dtype, layout, cap = how

    def on_device(x: jax.Array, head: jax.Array, targets: jax.Array) -> jax.Array:
        x, head, vocabulary, size = _gather(x, head, operand_dtype, layout)

        def one(_: None, chunk: tuple[jax.Array, jax.Array]) -> tuple[None, jax.Array]:
            return None, _chunk(chunk[0].astype(operand_dtype), head, chunk[1], vocabulary, cap)[0]

        _, losses = jax.lax.scan(one, None, (_split(x, size), _split(targets, size)))
        return _join(losses, x.shape[0])

    if layout.mesh is not None:
        hidden, tokens = _specs(layout)
        on_device = layout.local(on_device, (hidden, _HEAD, tokens), tokens)
    per_token = on_device(x_BLD, head_DV, targets_BL)
    return Losses(jnp.sum(per_token * weights_BL), per_token)


_HEAD = P("fsdp", "tp")


def _specs(layout: Layout) -> tuple[P, P]:
    """(PartitionSpec of hidden states, PartitionSpec of arrays per token)."""
    return P(layout.rows, "tp", None), P(layout.rows, None)


def _gather(
    x: jax.Array, head: jax.Array, operand_dtype: Any, layout: Layout
) -> tuple[jax.Array, jax.Array, _Vocabulary, int]:
    """(hidden states with the whole sequence of a device's rows, head with all features of its vocabulary shard,
    that shard, tokens per row of a chunk)."""
    head = head.astype(operand_dtype)
    if layout.mesh is not None:
        x = jax.lax.all_gather(x, "tp", axis=1, tiled=True)
        head = jax.lax.all_gather(head, "fsdp", axis=0, tiled=True)
    size = chunk_length(x.shape[0], x.shape[1], head.shape[1], layout.platform)
    return x, head, _Vocabulary(head.shape[1], layout.mesh is not None), size


def _forward(
    x_BLD: jax.Array, head_DV: jax.Array, targets_BL: jax.Array, weights_BL: jax.Array, how: _Static
) -> tuple[Losses, tuple[jax.Array, ...]]:
    operand_dtype, layout, cap = how
    rounds = operand_dtype != x_BLD.dtype

    def on_device(
        x: jax.Array, head: jax.Array, targets: jax.Array, weights: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        x, head, vocabulary, size = _gather(x, head, operand_dtype, layout)
        rows, _, dim = x.shape

        def one(
            slope_DV: jax.Array, chunk: tuple[jax.Array, jax.Array, jax.Array]
        ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            x_TD, targets_T, weights_T = chunk
            x_TD = x_TD.astype(operand_dtype)
            losses, exponentials, inverse, logits = _chunk(x_TD, head, targets_T, vocabulary, cap)
            ids = jnp.arange(head.shape[1], dtype=targets_T.dtype) + vocabulary.first
            hit = ids[None, :] == targets_T[:, None]
            scale = weights_T[:, None]
            slope = exponentials * (inverse * scale) - jnp.where(hit, scale, 0.0)
            slope = (slope * (1 - (logits / cap) ** 2) if cap else slope).astype(operand_dtype)
            slope_DV = slope_DV + dot(transposed(x_TD, rounds), slope, 1, 0)
            return slope_DV, (losses, dot(slope, head, 1, 1, x.dtype))

        chunks = (_split(x, size), _split(targets, size), _split(weights, size))
        slope_DV, (losses, slope_x) = jax.lax.scan(one, jnp.zeros((dim, head.shape[1]), jnp.float32), chunks)
        slope_x = _join(slope_x, rows)
        if layout.mesh is not None:
            slope_x = scattered(slope_x)
            slope_DV = jax.lax.psum_scatter(slope_DV, "fsdp", scatter_dimension=0, tiled=True)
            slope_DV = slope_DV if layout.within_slice else jax.lax.psum(slope_DV, "dcn")
        return _join(losses, rows), slope_x, slope_DV

    if layout.mesh is not None:
        hidden, tokens = _specs(layout)
        on_device = layout.local(on_device, (hidden, _HEAD, tokens, tokens), (tokens, hidden, _HEAD))
    per_token, slope_x, slope_DV = on_device(x_BLD, head_DV, targets_BL, weights_BL)
    saved = (slope_x, slope_DV.astype(head_DV.dtype), per_token)
    return Losses(jnp.sum(per_token * weights_BL), per_token), saved


def _backward(
    how: _Static, saved: tuple[jax.Array, ...], slope: Losses
) -> tuple[jax.Array, jax.Array, None, jax.Array]:
    slope_x, slope_DV, per_token = saved
    factor = slope.total
    return (slope_x * factor.astype(slope_x.dtype), slope_DV * factor, None, per_token * factor)


_cross_entropy.defvjp(_forward, _backward)
