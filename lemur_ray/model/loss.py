"""Cross-entropy of the next token without an array of all logits, with the gradient computed on the way.

The tokens are taken in chunks along the row. For every chunk the logits, the loss and, when a gradient is asked for,
the gradients of the hidden states and of the head are computed together, so the logits are never computed twice and
never kept. That is possible because the loss is a weighted sum: its gradient is known up to one scalar.
Knows nothing of models and of what the weights mean.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lemur_ray.model.matmul import dot, transposed

CHUNK_ELEMENTS = 4 << 20
"""Logits of one chunk (16 MiB in float32) at most, at least one token of every row."""


class Losses(NamedTuple):
    """Weighted sum of the losses (differentiable) and each token's own loss in nats (not differentiable)."""

    total: jax.Array
    """() float32."""
    per_token: jax.Array
    """(B, L) float32, before the weights."""


def chunk_length(rows: int, length: int, vocab: int) -> int:
    """Longest divisor of ``length`` whose chunk of logits stays within CHUNK_ELEMENTS, at least 1."""
    most = max(1, CHUNK_ELEMENTS // (rows * vocab))
    return max(n for n in range(1, length + 1) if length % n == 0 and n <= most)


def _chunk(x_TD: jax.Array, head_DV: jax.Array, targets_T: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Loss per token, shifted exponentials of the logits and the inverse of their sums, all float32."""
    logits = dot(x_TD, head_DV, 1, 0)
    top = jnp.max(logits, axis=-1, keepdims=True)
    exponentials = jnp.exp(logits - top)
    total = jnp.sum(exponentials, axis=-1, keepdims=True)
    picked = jnp.take_along_axis(logits, targets_T[:, None], axis=-1)
    return (jnp.log(total) + top - picked)[:, 0], exponentials, 1.0 / total


def _split(array: jax.Array, size: int) -> jax.Array:
    """(B, L, ...) -> (L / size, B * size, ...): chunks along the row, so a batch split over devices stays split."""
    rows, length = array.shape[:2]
    parts = array.reshape(rows, length // size, size, *array.shape[2:])
    return parts.swapaxes(0, 1).reshape(length // size, rows * size, *array.shape[2:])


def _join(parts: jax.Array, rows: int) -> jax.Array:
    """The inverse of ``_split``."""
    num, tokens = parts.shape[:2]
    out = parts.reshape(num, rows, tokens // rows, *parts.shape[2:]).swapaxes(0, 1)
    return out.reshape(rows, -1, *parts.shape[2:])


def cross_entropy(
    x_BLD: jax.Array, head_DV: jax.Array, targets_BL: jax.Array, weights_BL: jax.Array, operand_dtype: Any = None
) -> Losses:
    """Sum over tokens of weight x (log-sum-exp of the logits - logit of the target).

    x: hidden states; head: (D, V); targets: integer below V; weights: float32. Operands of the products are rounded to
    ``operand_dtype``, the dtype of x by default; logits are accumulated and reduced in float32. Gradients flow from
    ``total`` to x and head.
    """
    return _cross_entropy(x_BLD, head_DV, targets_BL, weights_BL, jnp.dtype(operand_dtype or x_BLD.dtype))


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _cross_entropy(
    x_BLD: jax.Array, head_DV: jax.Array, targets_BL: jax.Array, weights_BL: jax.Array, operand_dtype: Any
) -> Losses:
    rows, length, _ = x_BLD.shape
    size = chunk_length(rows, length, head_DV.shape[1])
    head = head_DV.astype(operand_dtype)

    def one(_: None, chunk: tuple[jax.Array, jax.Array]) -> tuple[None, jax.Array]:
        return None, _chunk(chunk[0].astype(operand_dtype), head, chunk[1])[0]

    _, losses = jax.lax.scan(one, None, (_split(x_BLD, size), _split(targets_BL, size)))
    per_token = _join(losses, rows)
    return Losses(jnp.sum(per_token * weights_BL), per_token)


def _forward(
    x_BLD: jax.Array, head_DV: jax.Array, targets_BL: jax.Array, weights_BL: jax.Array, operand_dtype: Any
) -> tuple[Losses, tuple[jax.Array, ...]]:
    rows, length, _ = x_BLD.shape
    size = chunk_length(rows, length, head_DV.shape[1])
    head = head_DV.astype(operand_dtype)
    rounds = operand_dtype != x_BLD.dtype

    def one(
        gradient_DV: jax.Array, chunk: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        x_TD, targets_T, weights_T = chunk
        x_TD = x_TD.astype(operand_dtype)
        losses, exponentials, inverse = _chunk(x_TD, head, targets_T)
        hit = jnp.arange(head.shape[1], dtype=targets_T.dtype)[None, :] == targets_T[:, None]
        scale = weights_T[:, None]
        slope = (exponentials * (inverse * scale) - jnp.where(hit, scale, 0.0)).astype(operand_dtype)
        gradient_DV = gradient_DV + dot(transposed(x_TD, rounds), slope, 1, 0)
        return gradient_DV, (losses, dot(slope, head, 1, 1, x_BLD.dtype))

    chunks = (_split(x_BLD, size), _split(targets_BL, size), _split(weights_BL, size))
    gradient_DV, (losses, gradient_x) = jax.lax.scan(one, jnp.zeros(head_DV.shape, jnp.float32), chunks)
    per_token = _join(losses, rows)
    saved = (_join(gradient_x, rows), gradient_DV.astype(head_DV.dtype), per_token)
    return Losses(jnp.sum(per_token * weights_BL), per_token), saved


def _backward(
    operand_dtype: Any, saved: tuple[jax.Array, ...], slope: Losses
) -> tuple[jax.Array, jax.Array, None, jax.Array]:
    gradient_x, gradient_DV, per_token = saved
    factor = slope.total
    return (gradient_x * factor.astype(gradient_x.dtype), gradient_DV * factor, None, per_token * factor)


_cross_entropy.defvjp(_forward, _backward)
