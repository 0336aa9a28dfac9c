"""Matrix products with float32 accumulation and a custom vector-Jacobian product.

Operands may be rounded to another type than the activations: bfloat16 operands are twice as fast on CPUs with bfloat16
dot instructions (AVX512-BF16, AMX), while everything between products stays float32. XLA's CPU kernels reach that speed
only on row-major operands, so transposed ones are copied."""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint


def allowing(float64: bool) -> AbstractContextManager[None]:
    """Context in which programs can be traced that compute in float64, if ``float64``; else it changes nothing."""
    return jax.enable_x64(True) if float64 else nullcontext()


def sum_dtype(x: jax.Array) -> Any:
    """The dtype in which products and means of x are summed: float32, or float64 if x is of that."""
    return jnp.promote_types(x.dtype, jnp.float32)


def dot(a: jax.Array, b: jax.Array, a_dim: int, b_dim: int, dtype: Any = jnp.float32) -> jax.Array:
    """Product of two matrices, contracted over dimension ``a_dim`` of a and ``b_dim`` of b (0 or 1), accumulated in
    ``sum_dtype`` and cast to ``dtype``."""
    return _contract(a, b, (a_dim,), (b_dim,), dtype, sum_dtype(a))


def transposed(x: jax.Array, written_out: bool) -> jax.Array:
    """Swap the last two dimensions; ``written_out`` forces a row-major copy instead of a view."""
    x = x.swapaxes(-1, -2)
    return with_layout_constraint(x, Layout(tuple(range(x.ndim)))) if written_out else x


def _contract(
    a: jax.Array,
    b: jax.Array,
    a_dims: tuple[int, ...],
    b_dims: tuple[int, ...],
    dtype: Any,
    product_dtype: Any = jnp.float32,
) -> jax.Array:
    """Product of two arrays over dimensions ``a_dims`` and ``b_dims``, cast to ``dtype``.
    product_dtype: type of the product for the compiler, and of partial sums sent between devices; each device
    accumulates in float32 regardless."""
    product = jax.lax.dot_general(a, b, ((a_dims, b_dims), ((), ())), preferred_element_type=product_dtype)
    return product.astype(dtype)


def _product_dtype(x: jax.Array) -> Any:
    return sum_dtype(x) if x.ndim == 2 else x.dtype


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(x: jax.Array, w_IO: jax.Array, operand_dtype: Any) -> jax.Array:
    a, b = x.astype(operand_dtype), w_IO.astype(operand_dtype)
    return _contract(a, b, (x.ndim - 1,), (0,), x.dtype, _product_dtype(x))


def _forward(x: jax.Array, w_IO: jax.Array, operand_dtype: Any) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _product(x, w_IO, operand_dtype), (x, w_IO)


def _backward(operand_dtype: Any, saved: tuple[jax.Array, jax.Array], g: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, w_IO = saved
    rounds = operand_dtype != x.dtype
    dtypes, product_dtype = (x.dtype, w_IO.dtype), _product_dtype(x)
    x, w_IO, g = (array.astype(operand_dtype) for array in (x, w_IO, g))
    slope_x = _contract(g, w_IO, (g.ndim - 1,), (1,), dtypes[0], product_dtype)
    if x.ndim == 2:
        return slope_x, dot(transposed(x, rounds), g, 1, 0, dtypes[1])
    leading = tuple(range(x.ndim - 1))
    # Computed transposed to cancel the ".T" of ``Layout.gathered``, which the TPU compiler does not move.
    return slope_x, _contract(g, x, leading, leading, dtypes[1], dtypes[1]).T


_product.defvjp(_forward, _backward)


AddUp = Callable[[tuple[jax.Array, ...], tuple[jax.Array, ...]], jax.Array]
"""Function of (gradients (B, L, O_i), weights (I, O_i)) that returns the sum of their products over O_i, (B, L, I)."""


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _products(x: jax.Array, weights: tuple[jax.Array, ...], operand_dtype: Any, add_up: AddUp) -> tuple[jax.Array, ...]:
    return tuple(_product(x, w_IO, operand_dtype) for w_IO in weights)


def _products_forward(
    x: jax.Array, weights: tuple[jax.Array, ...], operand_dtype: Any, add_up: AddUp
) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, tuple[jax.Array, ...]]]:
    return _products(x, weights, operand_dtype, add_up), (x, weights)


def _products_backward(
    operand_dtype: Any, add_up: AddUp, saved: tuple[jax.Array, tuple[jax.Array, ...]], slopes: tuple[jax.Array, ...]
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    x, weights = saved
    slopes = tuple(g.astype(operand_dtype) for g in slopes)
    slope_x = add_up(slopes, tuple(w_IO.astype(operand_dtype) for w_IO in weights)).astype(x.dtype)
    a, leading = x.astype(operand_dtype), tuple(range(x.ndim - 1))
    return slope_x, tuple(
        _contract(a, g, leading, leading, w.dtype, w.dtype) for g, w in zip(slopes, weights, strict=True)
    )


_products.defvjp(_products_forward, _products_backward)


@partial(jax.tree_util.register_dataclass, data_fields=["base", "a", "b"], meta_fields=["scale"])
@dataclasses.dataclass(frozen=True)
class LowRank:
    """A matrix as base + scale x a b, which is never formed. Indexing selects along leading axes, as for an array."""

    base: Any
    """Original matrix (.., I, O)."""
    a: Any
    """First factor of the adapter (.., I, r)."""
    b: Any
    """Second factor of the adapter (.., r, O)."""
    scale: float

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.base.shape)

    def __getitem__(self, index: Any) -> "LowRank":
        return self if index is Ellipsis else LowRank(self.base[index], self.a[index], self.b[index], self.scale)


def matmul(x: jax.Array, w_IO: jax.Array | LowRank, operand_dtype: Any = None, *, flat: bool = True) -> jax.Array:
    """x @ w over the last axis of x: (..., I) x (I, O) -> (..., O), in the dtype of x.
    Both operands, also in the backward pass, are rounded to ``operand_dtype`` (default: the dtype of x). flat: merge
    the leading axes of x, which is fast on CPU but merges their shardings."""
    if isinstance(w_IO, LowRank):
        adapter = matmul(matmul(x, w_IO.a, operand_dtype, flat=flat), w_IO.b, operand_dtype, flat=flat)
        return matmul(x, w_IO.base, operand_dtype, flat=flat) + w_IO.scale * adapter
    dtype = jnp.dtype(operand_dtype or x.dtype)
    w_IO = jnp.asarray(w_IO)
    if not flat:
        return _product(x, w_IO, dtype)
    return _product(x.reshape(-1, x.shape[-1]), w_IO, dtype).reshape(*x.shape[:-1], w_IO.shape[-1])


def matmuls(
    x_BLI: jax.Array, weights: tuple[jax.Array | LowRank, ...], operand_dtype: Any, add_up: AddUp | None
) -> tuple[jax.Array, ...]:
    """Products (B, L, O_i) of one input with several matrices (I, O_i), each as by ``matmul``, in x's dtype. add_up:
    computes the gradient of x from those of all results, for matrices sharded over O_i, with one reduction instead of
    one per product. None, or any LowRank matrix: products are independent. operand_dtype: of rounded operands."""
    if add_up is None or any(isinstance(w, LowRank) for w in weights):
        return tuple(matmul(x_BLI, w, operand_dtype, flat=add_up is None) for w in weights)
    return _products(x_BLI, tuple(jnp.asarray(w) for w in weights), jnp.dtype(operand_dtype), add_up)
