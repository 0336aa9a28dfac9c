"""Muon for stacked matrices: Nesterov momentum, made nearly orthogonal layer by layer (Jordan et al. 2024).

The orthogonalisation is the quintic Newton-Schulz iteration of ``optax.contrib.scale_by_muon``, which its test compares
with. Two differences: wide matrices are iterated on their small Gram matrix, and operands may be rounded to bfloat16
(docs/decisions/015). Knows nothing of schedules and decay."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b, c of one step X -> a X + (b A + c A A) X, A = X X^T: steep at zero, singular values end in 0.7 .. 1.2."""
STEPS = 5
"""Newton-Schulz iterations."""

_WIDE = 2.0
"""Columns per row from which iterating on the Gram matrix takes fewer operations; used for float32 operands only."""


class MuonState(NamedTuple):
    """Optimizer state of Muon: exponentially decayed sum of gradients, a tree like the parameters."""

    momentum: Any


def _dot(a: jax.Array, b: jax.Array, b_dim: int, dtype: Any) -> jax.Array:
    """Batched a @ b over a's last dimension: operands rounded to ``dtype``, accumulated in float32."""
    dims = (((2,), (b_dim,)), ((0,), (0,)))
    return jax.lax.dot_general(
        a.astype(dtype), b.astype(dtype), dims, precision="highest", preferred_element_type=jnp.float32
    )


def orthogonalise(x_NIO: jax.Array, operand_dtype: Any = jnp.float32) -> jax.Array:
    """Replace each of N matrices by a nearly orthogonal one: singular values go to 0.7 .. 1.2, singular vectors stay.
    x_NIO: (N, I, O) float32, as is the result. operand_dtype: type that operands of products are rounded to."""
    if x_NIO.shape[1] > x_NIO.shape[2]:
        return orthogonalise(x_NIO.swapaxes(1, 2), operand_dtype).swapaxes(1, 2)
    a, b, c = COEFFICIENTS
    x = x_NIO / (jnp.sqrt(jnp.sum(x_NIO**2, axis=(1, 2), keepdims=True)) + 1e-8)
    if x.shape[2] < _WIDE * x.shape[1] or jnp.dtype(operand_dtype) != jnp.float32:
        for _ in range(STEPS):
            gram = _dot(x, x, 2, operand_dtype)
            x = a * x + _dot(b * gram + c * _dot(gram, gram, 2, operand_dtype), x, 1, operand_dtype)
        return x
    # Each step multiplies x from the left by a polynomial of its Gram matrix. These are symmetric and commute, so the
    # iteration can run on the Gram matrix, and x is multiplied once by the product of all factors.
    # Only with exact products: rounding errors of small singular values grow by the whole product (10,000-fold with
    # bfloat16 and a gradient whose singular values fall as 1 / k^2).
    gram = _dot(x, x, 2, operand_dtype)
    product: jax.Array | None = None
    for step in range(STEPS):
        factor = a * jnp.eye(x.shape[1]) + b * gram + c * _dot(gram, gram, 2, operand_dtype)
        product = factor if product is None else _dot(factor, product, 2, operand_dtype)
        if step < STEPS - 1:
            gram = _dot(_dot(factor, gram, 2, operand_dtype), factor, 2, operand_dtype)
    assert product is not None
    return _dot(product, x, 1, operand_dtype)


def scale_by_muon(momentum: float, operand_dtype: Any = jnp.float32) -> optax.GradientTransformation:
    """The optax transformation from gradients of stacked matrices (N, I, O) to orthogonalised Nesterov momentum.
    momentum: its decay, below 1; operand_dtype: to which operands of products are rounded."""

    def init(params: Any) -> MuonState:
        return MuonState(jax.tree.map(jnp.zeros_like, params))

    def update(updates: Any, state: MuonState, params: Any = None) -> tuple[Any, MuonState]:
        running = jax.tree.map(lambda m, g: momentum * m + g, state.momentum, updates)
        ahead = jax.tree.map(lambda m, g: momentum * m + g, running, updates)
        return jax.tree.map(lambda x: orthogonalise(x, operand_dtype), ahead), MuonState(running)

    return optax.GradientTransformation(init, update)
