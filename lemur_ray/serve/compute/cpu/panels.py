"""Matrices packed in panels for ``products.cc``: fast from one row on, with the same bits at any number of rows.

Knows nothing of models.

Legend: T rows, I input, O output, W words of 32 bits in a column, P panels of ``COLUMNS`` columns."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

COLUMNS = 32
_WORD = 4
"""Bytes of a word: one float32, two bfloat16 or four int8, consecutive in a column"""
_TARGETS = {"float32": "lemur_product_float32", "bfloat16": "lemur_product_bfloat16", "int8": "lemur_product_int8"}


@partial(jax.tree_util.register_dataclass, data_fields=("words",), meta_fields=("outputs",))
@dataclass(frozen=True)
class Packed:
    """A packed matrix (I, O) of float32, bfloat16 or int8; int8 with 128 added, see ``products.cc``."""

    words: Any
    """(P, W, COLUMNS) int32, padded with zeros"""
    outputs: int
    """O of one device"""


def pack(w_IO: np.ndarray) -> Packed:
    """Pack a matrix (I, O) of float32, bfloat16 or int8 into panels, on the host."""
    inputs, outputs = w_IO.shape
    each = _WORD // w_IO.dtype.itemsize
    words, panels = -(-inputs // each), -(-outputs // COLUMNS)
    whole = np.pad(w_IO, ((0, words * each - inputs), (0, panels * COLUMNS - outputs)))
    bits = whole.view(f"u{w_IO.dtype.itemsize}")
    if w_IO.dtype == np.int8:
        bits ^= 128
    # Little-endian words: the lowest bytes are the first of the consecutive inputs.
    panelled = bits.reshape(words, each, panels, COLUMNS).transpose(2, 0, 3, 1)
    return Packed(np.ascontiguousarray(panelled).view(np.int32)[..., 0], outputs)


def packed_product(x_TI: jax.Array, w: Packed, real: jax.Array | None = None) -> jax.Array:
    """x @ w, for x in the dtype of ``w``: (T, O) float32, or int32 for int8. CPU only, with the kernels registered.
    real: scalar, number of leading rows to compute; the others are 0. None: all rows."""
    each = _WORD // x_TI.dtype.itemsize
    missing = w.words.shape[1] * each - x_TI.shape[1]
    out = jax.ShapeDtypeStruct((x_TI.shape[0], w.outputs), jnp.int32 if x_TI.dtype == jnp.int8 else jnp.float32)
    call = jax.ffi.ffi_call(_TARGETS[x_TI.dtype.name], out)
    x_TI = jnp.pad(x_TI, ((0, 0), (0, missing))) if missing else x_TI
    return call(x_TI, w.words, jnp.int32(x_TI.shape[0] if real is None else real))
