"""Parameters that lie on devices, a block at a time: cut and rounded on the device, so that the host holds a block.

``LiveWeights`` is a source for a process that holds every device. Where several processes hold a leaf together, each
calls ``own_rows`` and gets a share of the whole rows. Knows nothing of files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import Params, init_params
from lemur_ray.weights.param_slices import Index, label, normalised

Block = tuple[tuple[range, ...], np.ndarray]
"""A part of a leaf and where it is."""


class LiveWeights:
    """Arrays on devices of this process, or numpy arrays, as a source (``weights.Source``)."""

    def __init__(self, params: Params, config: ModelConfig, dtype: np.dtype[Any] | None = None) -> None:
        """dtype: what every leaf is rounded to; None: each has its own."""
        self.config, self._dtype = config, dtype
        self._leaves = {label(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}

    def chunk(self, label: str) -> tuple[int, ...]:
        """Any part can be read alone."""
        return (1,) * self._leaves[label].ndim

    def dtype(self, label: str) -> np.dtype[Any]:
        """What a leaf is rounded to."""
        return self._dtype or np.dtype(self._leaves[label].dtype)

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        """One slice of a leaf, from the shards that hold it."""
        leaf, dtype = self._leaves[label], dtype or self.dtype(label)
        if not isinstance(leaf, jax.Array):
            return np.asarray(leaf[index], dtype)
        wanted = normalised(index, leaf.shape)
        out = np.empty([len(part) for part in wanted], dtype)
        for shard in leaf.addressable_shards:
            held = normalised(shard.index, leaf.shape)
            common = [range(max(w.start, h.start), min(w.stop, h.stop)) for w, h in zip(wanted, held, strict=True)]
            if shard.replica_id or not all(common):
                continue
            # As long as is wanted even where the shard ends before it: blocks of one length are compiled once.
            sizes = [min(len(w), len(h)) for w, h in zip(wanted, held, strict=True)]
            starts = [min(c.start - h.start, len(h) - s) for c, h, s in zip(common, held, sizes, strict=True)]
            piece = np.asarray(_cut(shard.data, starts, tuple(sizes), dtype))
            skipped = [h.start + start for h, start in zip(held, starts, strict=True)]
            out[_between(common, [w.start for w in wanted])] = piece[_between(common, skipped)]
        return out


def random_weights(config: ModelConfig, seed: int) -> LiveWeights:
    """Random float32 weights in host memory, the same for the same seed."""
    return LiveWeights(jax.tree.map(np.asarray, init_params(config, seed)), config)


def _between(parts: list[range], origin: list[int]) -> Index:
    return tuple(slice(part.start - begin, part.stop - begin) for part, begin in zip(parts, origin, strict=True))


@partial(jax.jit, static_argnums=(2, 3))
def _cut(shard: jax.Array, starts: list[int], sizes: tuple[int, ...], dtype: np.dtype[Any]) -> jax.Array:
    return jax.lax.dynamic_slice(shard, starts, sizes).astype(dtype)


def own_rows(
    leaf: jax.Array, layer: int | None, axis: int | None, dtype: np.dtype[Any], block_rows: int
) -> Iterator[Block]:
    """This process's share of one layer (or of a leaf without layers: None), in blocks of whole rows.

    Every process calls it alike. axis: of the leaf, the one whose indices are rows; None where there is one row alone.
    block_rows: most rows of a block, over all devices of a process.
    """
    assert isinstance(leaf.sharding, NamedSharding), f"{leaf.sharding}: several processes need one mesh"
    where = [range(size) for size in leaf.shape]
    if layer is not None:
        where[0] = range(layer, layer + 1)
    _, across, parts = _held(leaf.sharding, leaf.ndim, axis)
    depth = 1 if axis is None else leaf.shape[axis] // parts
    count = min(depth, max(1, block_rows // jax.local_device_count() // across) * across)
    take = _taken(leaf.sharding, leaf.ndim, count, layer is not None, axis, dtype)
    for begin in range(0, depth, count):
        first = min(begin, depth - count)  # the last block may repeat rows
        piece = take(leaf, layer or 0, first)
        for shard in piece.addressable_shards:
            if shard.replica_id:
                continue
            array = np.asarray(shard.data)
            if axis is None:
                yield tuple(where), array
                continue
            of_part, rows = normalised(shard.index, piece.shape)[axis : axis + 2]
            for at, part in enumerate(of_part):
                start = part * depth + first + rows.start
                place = [*where[:axis], range(start, start + len(rows)), *where[axis + 1 :]]
                yield tuple(place), array[(slice(None),) * axis + (at,)]


def _held(sharding: NamedSharding, rank: int, axis: int | None) -> tuple[tuple[Any, Any], int, int]:
    """Mesh axes over the rows and over the columns of a leaf, and into how many parts they divide them."""
    spec = [*sharding.spec, *[None] * (rank - len(sharding.spec))]

    def parts(names: Any) -> int:
        names = (names,) if isinstance(names, str) else names or ()
        return math.prod(sharding.mesh.shape[name] for name in names)

    if axis is None:
        return (None, None), 1, 1
    columns = spec[rank - 1 if axis == rank - 2 else rank - 2]
    return (spec[axis], columns), parts(columns), parts(spec[axis])


@cache
def _taken(
    sharding: NamedSharding, rank: int, count: int, stacked: bool, axis: int | None, dtype: np.dtype[Any]
) -> Any:
    """``count`` rows of every part of a layer, from its row ``first`` on; what was split by columns is split by rows.

    Devices exchange a block of what they hold, never a layer: a slice along a split axis would gather it.
    """
    (rows, columns), across, parts = _held(sharding, rank, axis)
    spec: list[Any] = [None] * (rank if axis is None else rank + 1)
    if axis is not None:
        spec[axis : axis + 2] = [rows, columns if count % across == 0 else None]

    @partial(jax.jit, out_shardings=NamedSharding(sharding.mesh, PartitionSpec(*spec)))
    def take(leaf: jax.Array, layer: int, first: int) -> jax.Array:
        x = jax.lax.dynamic_slice_in_dim(leaf, layer, 1, 0) if stacked else leaf
        if axis is not None:
            x = x.reshape(*x.shape[:axis], parts, -1, *x.shape[axis + 1 :])
            x = jax.lax.dynamic_slice_in_dim(x, first, count, axis + 1)
        return x.astype(dtype)

    return take
