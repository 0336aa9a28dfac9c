"""Matrix products with float32 accumulation and a vector-Jacobian product of our own.

Operands may be rounded to another type than the activations: with bfloat16 operands a CPU that has bfloat16 dot
instructions (AVX512-BF16, AMX) is twice as fast, while everything between the products stays float32. XLA's CPU kernels
are that fast only on row-major operands, so transposed ones are written out. Knows nothing of models.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint


def dot(a: jax.Array, b: jax.Array, a_dim: int, b_dim: int, dtype: Any = jnp.float32) -> jax.Array:
    """Contract one dimension of each matrix, accumulating in float32; the result in ``dtype``."""
    product = jax.lax.dot_general(a, b, (((a_dim,), (b_dim,)), ((), ())), preferred_element_type=jnp.float32)
    return product.astype(dtype)


def transposed(x: jax.Array, written_out: bool) -> jax.Array:
    """Swap the last two dimensions; ``written_out`` forbids XLA to hand on a view in another order."""
    x = x.swapaxes(-1, -2)
    return with_layout_constraint(x, Layout(tuple(range(x.ndim)))) if written_out else x


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(x_TI: jax.Array, w_IO: jax.Array, operand_dtype: Any) -> jax.Array:
    return dot(x_TI.astype(operand_dtype), w_IO.astype(operand_dtype), 1, 0, x_TI.dtype)


def _forward(x_TI: jax.Array, w_IO: jax.Array, operand_dtype: Any) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _product(x_TI, w_IO, operand_dtype), (x_TI, w_IO)


def _backward(operand_dtype: Any, saved: tuple[jax.Array, jax.Array], g_TO: jax.Array) -> tuple[jax.Array, jax.Array]:
    x_TI, w_IO = saved
    rounds = operand_dtype != x_TI.dtype
    x, w, g = (array.astype(operand_dtype) for array in (x_TI, w_IO, g_TO))
    return dot(g, w, 1, 1, x_TI.dtype), dot(transposed(x, rounds), g, 1, 0, w_IO.dtype)


_product.defvjp(_forward, _backward)


def matmul(x: jax.Array, w_IO: jax.Array, operand_dtype: Any = None) -> jax.Array:
    """x @ w over the last axis of x: (..., I) x (I, O) -> (..., O), in the dtype of x.

    Both operands, here and in the backward pass, are rounded to ``operand_dtype`` (the dtype of x by default).
    """
    flat = x.reshape(-1, x.shape[-1])
    dtype = jnp.dtype(operand_dtype or x.dtype)
    return _product(flat, jnp.asarray(w_IO), dtype).reshape(*x.shape[:-1], w_IO.shape[-1])
