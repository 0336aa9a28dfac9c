"""Arithmetic whose result for one row does not depend on how many rows stand beside it.

XLA's kernels on CPU choose the order of a sum by the shape: from 64 rows on, and at a single row, a matrix product
sums in another order than for 2 to 32 rows, and a reduction does so at almost every shape. A greedy choice between two
close tokens would then depend on the load of the server. Here products run in tiles of 2 to 32 rows and sums along a
row are a tree of additions. ``exactness.py`` measures on the machine at hand whether that was enough. Knows nothing of
models.

Legend: T rows, K kv heads, Q queries, h head width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

TILE = 32
"""Rows of one product; the largest number that XLA:CPU treats like a small one."""


def product(x_TI: jax.Array, w_IO: jax.Array, *, tiled: bool) -> jax.Array:
    """x @ w with float32 accumulation, in the dtype of x; ``tiled`` False: in one piece, for accelerators."""
    dot = partial(lax.dot_general, dimension_numbers=(((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)
    if not tiled:
        return dot(x_TI, w_IO).astype(x_TI.dtype)
    rows = x_TI.shape[0]
    if rows == 1:
        x_TI = jnp.concatenate([x_TI, x_TI])
    tiles = [dot(x_TI[i : i + TILE], w_IO) for i in range(0, x_TI.shape[0], TILE)]
    return (tiles[0] if len(tiles) == 1 else jnp.concatenate(tiles))[:rows].astype(x_TI.dtype)


def tiled_queries(dot: Callable[[jax.Array, jax.Array], jax.Array], x_KQh: jax.Array, y: jax.Array) -> jax.Array:
    """A product per head whose first operand is cut into tiles along its queries."""
    tiles = [dot(x_KQh[:, i : i + TILE], y) for i in range(0, x_KQh.shape[1], TILE)]
    return tiles[0] if len(tiles) == 1 else jnp.concatenate(tiles, axis=1)


def row_sum(x: jax.Array) -> jax.Array:
    """Sum over the last axis, which stays with width 1: the upper half is added to the lower one until one is left."""
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)])
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x


def rms_norm(x: jax.Array, weight_D: jax.Array, eps: float) -> jax.Array:
    """The norm of ``model.llama`` with the order of ``row_sum``; computed in float32, in the dtype of x."""
    x32 = x.astype(jnp.float32)
    return (x32 * lax.rsqrt(row_sum(x32 * x32) / x.shape[-1] + eps) * weight_D).astype(x.dtype)
