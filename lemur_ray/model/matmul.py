"""Matrix products as XLA's CPU backend likes them: float32 accumulation and a vector-Jacobian product of our own.

The default bfloat16 product on CPU converts the whole weight at every call, and the default backward pass contracts
over leading axes, which leaves the fast path; both are avoided by stating the products here. On other backends the same
program is the ordinary one. Knows nothing of models.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def dot(a: jax.Array, b: jax.Array, a_axis: int, b_axis: int, dtype: jnp.dtype) -> jax.Array:
    """Contract one axis of each matrix, accumulating in float32."""
    product = jax.lax.dot_general(a, b, (((a_axis,), (b_axis,)), ((), ())), preferred_element_type=jnp.float32)
    return product.astype(dtype)


@jax.custom_vjp
def _product(x_TI: jax.Array, w_IO: jax.Array) -> jax.Array:
    return dot(x_TI, w_IO, 1, 0, x_TI.dtype)


def _forward(x_TI: jax.Array, w_IO: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _product(x_TI, w_IO), (x_TI, w_IO)


def _backward(saved: tuple[jax.Array, jax.Array], g_TO: jax.Array) -> tuple[jax.Array, jax.Array]:
    x_TI, w_IO = saved
    # Transposing first keeps both products in the layout that the CPU kernels are written for.
    return dot(g_TO, w_IO.T, 1, 0, x_TI.dtype), dot(x_TI.T, g_TO, 1, 0, w_IO.dtype)


_product.defvjp(_forward, _backward)


def matmul(x: jax.Array, w_IO: jax.Array) -> jax.Array:
    """x @ w over the last axis of x: (..., I) x (I, O) -> (..., O), in the dtype of x; w is cast to it."""
    flat = x.reshape(-1, x.shape[-1])
    return _product(flat, w_IO.astype(x.dtype)).reshape(*x.shape[:-1], w_IO.shape[-1])
