"""Add vocabulary rows to embedding and head, each the mean of the stored ones, on the host or on a mesh.

Published weights lack rows for tokens that are added to the tokenizer, such as those of chats."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.weights.param_slices import Index, Source, leaves, normalised


class GrownWeights:
    """Weight source that extends another to ``vocab_size`` vocabulary rows; each new one is the mean of the stored
    ones, which are read when this is made."""

    def __init__(self, source: Source, vocab_size: int) -> None:
        self._source = source
        self.config = dataclasses.replace(source.config, vocab_size=vocab_size)
        self._means = {name: self._mean(name) for name in ("embed", "head") if name in leaves(source.config)}

    def _mean(self, name: str) -> np.ndarray:
        shape = leaves(self._source.config)[name]
        axis = 0 if name == "embed" else 1
        total = np.zeros([1 if i == axis else size for i, size in enumerate(shape)])
        for first in range(0, shape[axis], 1024):
            part = slice(first, min(first + 1024, shape[axis]))
            index = tuple(part if i == axis else slice(None) for i in range(2))
            total += self._source.read(name, index, np.dtype(np.float32)).sum(axis, keepdims=True, dtype=np.float64)
        return total / shape[axis]

    def chunk(self, label: str) -> tuple[int, ...]:
        return self._source.chunk(label)

    def dtype(self, label: str) -> np.dtype[Any]:
        return self._source.dtype(label)

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        stored, wanted = leaves(self._source.config)[label], normalised(index, leaves(self.config)[label])
        out = read_padded(self._source, label, wanted, stored, dtype or self.dtype(label))
        if label in self._means:
            axis = 0 if label == "embed" else 1
            new = len(wanted[axis]) - max(0, min(wanted[axis].stop, stored[axis]) - wanted[axis].start)
            rows = self._means[label][(slice(None), *index[1:]) if axis == 0 else (*index[:1], slice(None))]
            if new:
                np.moveaxis(out, axis, 0)[len(wanted[axis]) - new :] = np.moveaxis(rows, axis, 0)
        return out


def read_padded(
    source: Source, name: str, parts: tuple[range, ...], stored: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray:
    """Slice ``parts`` of the leaf ``name``, zero where it exceeds the ``stored`` shape."""
    inside = tuple(slice(min(part.start, size), min(part.stop, size)) for part, size in zip(parts, stored, strict=True))
    return filled(source.read(name, inside, dtype), [len(part) for part in parts])


def filled(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The array, padded with zeros at the end of each axis to ``shape``; the same object if it has that shape."""
    missing = [(0, wanted - size) for wanted, size in zip(shape, array.shape, strict=True)]
    return np.pad(array, missing) if any(after for _, after in missing) else array


def fill_new_rows(array: jax.Array, stored: tuple[int, ...], sharding: jax.sharding.Sharding) -> jax.Array:
    """The leaf ``array``, zero beyond the ``stored`` shape, with these vocabulary rows set to the mean of the others.
    The memory of ``array`` is reused. sharding: of the result."""
    axis = next(i for i, (size, old) in enumerate(zip(array.shape, stored, strict=True)) if size != old)

    @partial(jax.jit, out_shardings=sharding, donate_argnums=0)
    def fill(x: jax.Array) -> jax.Array:
        mean = jnp.sum(x, axis, keepdims=True) / stored[axis]
        new = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis) >= stored[axis]
        return jnp.where(new, mean, x)

    out: jax.Array = fill(array)
    return out
