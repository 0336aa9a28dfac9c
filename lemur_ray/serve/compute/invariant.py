"""Batch-invariant arithmetic: the result for one row need not depend on the number of rows.

XLA's kernels on CPU choose the order of a sum by the shape: from about 20 rows on (depending on the width) and at a
single row, a matrix product sums in another order than for 2 to 16 rows, and a reduction does so at almost every
shape. A greedy choice between two close tokens would then depend on the load of the server. Here products can run in
tiles of 2 to 16 rows, and sums along a row are a tree of additions. ``on_devices.py`` measures whether that is enough
on this machine. Knows nothing of models.

Legend: T rows, K kv heads, Q queries, h head width."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from lemur_ray.model.matmul import sum_dtype
from lemur_ray.serve.compute.cpu.panels import Packed, packed_product
from lemur_ray.serve.compute.devices import Sums
from lemur_ray.serve.compute.quantized import Quantized, quantized_product

TILE = 32
"""Tokens of a prompt in one row of a prefill."""


class Arithmetic(NamedTuple):
    """How matrix products and attention are computed: rows per product, attention row by row or batched, and how
    devices share and add up products."""

    tile: int
    """Most rows of one product, which then has at least two; 0: no limit"""
    one_by_one: bool
    """Attention row by row, each at its own length: faster on a CPU"""
    axis: str | None = None
    """Mesh axis over which every product is split; None: one device"""
    sums: Sums = "gather"
    float64: bool = False
    """Activations, products and sums are float64; a program with them is traced in ``allowing``"""

    def widened(self, x: jax.Array) -> jax.Array:
        """Hidden states in the dtype of activations."""
        return x.astype(jnp.float64) if self.float64 else x


EXACT_CPU = Arithmetic(16, True)
"""Gives the same bits at any shape: up to 16 rows, XLA:CPU summed in the same order at every width measured."""
FAST_CPU = Arithmetic(0, True)  # the bits of a row may depend on the number of rows
ACCELERATOR = Arithmetic(0, False)


class Transposed(NamedTuple):
    """A matrix (I, O), stored transposed: ``values`` is (O, I)."""

    values: Any
    """(O, I)"""


Matrix = jax.Array | Transposed | Packed | Quantized


def product(x_TI: jax.Array, w: Matrix, tile: int, real: jax.Array | None = None) -> jax.Array:
    """x @ w in ``sum_dtype``. tile: most rows of one product, 0: no limit; real: number of leading rows, None: all."""
    if isinstance(w, Quantized):
        return quantized_product(x_TI, w, real)
    if isinstance(w, Packed):
        return packed_product(x_TI, w, real)
    values, along = (w.values, 1) if isinstance(w, Transposed) else (w, 0)
    dimensions = (((1,), (along,)), ((), ()))
    dot = partial(lax.dot_general, dimension_numbers=dimensions, preferred_element_type=sum_dtype(x_TI))
    rows = x_TI.shape[0]
    if rows == 1 and (tile or x_TI.dtype != jnp.float32):  # a single row of bfloat16 is ten times slower than two
        x_TI = jnp.concatenate([x_TI, x_TI])
    return _by_tiles(lambda x: dot(x, values.astype(x.dtype)), x_TI, 0, tile)[:rows]


def tiled_queries(
    dot: Callable[[jax.Array, jax.Array], jax.Array], x_KQh: jax.Array, y: jax.Array, tile: int
) -> jax.Array:
    """``dot(x, y)``, batched over kv heads, for at most ``tile`` query rows of x (axis 1) at a time; 0: all at once."""
    queries = x_KQh.shape[1]
    if queries == 1 and x_KQh.dtype != jnp.float32:  # as in ``product``, and summed in the order of many
        x_KQh = jnp.concatenate([x_KQh, x_KQh], axis=1)
    return _by_tiles(lambda x: dot(x, y), x_KQh, 1, tile)[:, :queries]


def _by_tiles(dot: Callable[[jax.Array], jax.Array], x: jax.Array, axis: int, tile: int) -> jax.Array:
    rows = x.shape[axis]
    if not tile or rows <= tile:
        return dot(x)
    pieces = [lax.slice_in_dim(x, i, min(i + tile, rows), axis=axis) for i in range(0, rows, tile)]
    return jnp.concatenate([dot(piece) for piece in pieces], axis=axis)


def row_sum(x: jax.Array) -> jax.Array:
    """Sum over the last axis, kept with width 1, as a tree: the upper half is added to the lower one repeatedly."""
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)])
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x


def rms_norm(x: jax.Array, weight_D: jax.Array, eps: float) -> jax.Array:
    """RMS norm as in ``model.llama``, summed by ``row_sum`` in ``sum_dtype``; returned in the dtype of x. x: (T, D);
    weight_D: scale of each feature; eps: added to the mean square."""
    wide = x.astype(sum_dtype(x))
    return (wide * lax.rsqrt(row_sum(wide * wide) / x.shape[-1] + eps) * weight_D).astype(x.dtype)
