"""Products with int8 weights: one scale for every column of the matrix and every row of the input.

Weights are rounded once, inputs at every product; integer sums do not depend on their order, so these products give the
same bits at any shape. Knows nothing of models.

Legend: T rows, I input, O output."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lemur_ray.serve.compute.cpu.panels import Packed, packed_product

_LARGEST = 127


class Quantized(NamedTuple):
    """A matrix (I, O), rounded to int8 ``values`` (O, I) with a float32 ``scale`` (O,) for each column."""

    values: Any
    """(O, I) int8, transposed so that each sum reads memory in order; or ``Packed``"""
    scale: Any
    """(O,) float32: value of one step of a column"""


def quantize(w_IO: np.ndarray, largest_O: np.ndarray | None = None) -> Quantized:
    """Round a matrix on the host, to the nearest of 255 steps per column, scaled by its largest absolute value.
    largest_O: the largest absolute values of the whole matrix, if ``w_IO`` is only some of its rows."""
    largest = (np.abs(w_IO).max(axis=0) if largest_O is None else largest_O).astype(np.float32)
    scale = np.where(largest == 0, np.float32(1), largest / _LARGEST)
    with np.errstate(invalid="ignore"):  # a column with NaN has a scale of NaN
        return Quantized(np.ascontiguousarray(np.rint(w_IO / scale).astype(np.int8).T), scale)


def quantized_product(x_TI: jax.Array, w: Quantized, real: jax.Array | None = None) -> jax.Array:
    """x @ w, with inputs rounded row by row: (T, O) float32; real: number of leading rows to compute, None: all."""
    # Without it, XLA would skip the rounding to bfloat16 before the product on a single device.
    x32 = x_TI.astype(jnp.float32)
    largest = jnp.max(jnp.abs(x32), axis=1, keepdims=True)
    # Factors, not quotients, which compilers round differently: bfloat16 is often halfway between two steps.
    scale, steps = largest * np.float32(1 / _LARGEST), jnp.where(largest > 0, _LARGEST / largest, 0)
    rounded = jnp.round(x32 * steps).astype(jnp.int8)
    total = packed_product(rounded, w.values, real) if isinstance(w.values, Packed) else _total(rounded, w.values)
    # One bit less than float32 has, so that a fused addition rounds as it does after a gather.
    return lax.reduce_precision(total.astype(jnp.float32) * (scale * w.scale), 8, 22)


def _total(x_TI: jax.Array, w_OI: jax.Array) -> jax.Array:
    rows = x_TI.shape[0]
    if rows == 1:  # ten times slower than two on a CPU
        x_TI = jnp.concatenate([x_TI, x_TI])
    return lax.dot_general(x_TI, w_OI, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)[:rows]
