"""A model laid out on a mesh: each process reads as many bytes as its own devices hold, each byte once.

Where several devices share a stored row, each would have to read narrow columns of many rows: a request a row, or whole
rows by every one of them. There each reads some of the rows whole instead, and then they deal the columns out between
themselves. Knows nothing of formats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import Params, abstract_params
from lemur_ray.weights.param_slices import Source, label, leaves, normalised
from lemur_ray.weights.vocabulary_growth import fill_new_rows, filled, read_padded

Parts = tuple[range, ...]


def place(source: Source, config: ModelConfig, shardings: Params) -> Params:
    """The parameters as float32 arrays on a mesh; of the host's memory one slice of one leaf is used at a time.

    Every process calls it alike and reads what its own devices hold, or as much of what they then exchange.
    config: the source's own, or one with a larger vocabulary; the new rows are the mean of those there.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf, sharding: place_leaf(source, label(path), leaf.shape, sharding),
        abstract_params(config),
        shardings,
    )


def place_leaf(source: Source, name: str, shape: tuple[int, ...], sharding: jax.sharding.Sharding) -> jax.Array:
    """One leaf of ``place``."""
    stored = leaves(source.config)[name]
    if (by_rows := read_by_rows(shape, sharding, source.chunk(name))) is None:
        out = _read(source, name, shape, sharding)
    else:
        out = by_rows.dealt(_read(source, name, by_rows.shape, by_rows.read, by_rows.of_leaf))
    return out if shape == stored else fill_new_rows(out, stored, sharding)


def _read(
    source: Source,
    name: str,
    shape: tuple[int, ...],
    sharding: jax.sharding.Sharding,
    of_leaf: Callable[[Parts], Parts] = lambda parts: parts,
) -> jax.Array:
    """An array of parts of a leaf, zero beyond; what several devices of this process hold is read once.

    of_leaf: what of the leaf lies in a part of the array, from its begin on.
    """
    stored = leaves(source.config)[name]
    indices = sharding.addressable_devices_indices_map(shape)
    holders: dict[Parts, list[Any]] = {}
    for device, index in indices.items():
        holders.setdefault(normalised(index or (slice(None),) * len(shape), shape), []).append(device)
    pieces = {}
    for parts, devices in holders.items():
        found = read_padded(source, name, of_leaf(parts), stored, np.dtype(np.float32))
        array = filled(found, [len(part) for part in parts])
        for device in devices:
            pieces[device] = jax.device_put(array, device)
        jax.block_until_ready(list(pieces.values()))  # before the next slice takes its memory on the host
    arrays = [pieces[device] for device in indices]
    return jax.make_array_from_single_device_arrays(shape, sharding, arrays, dtype=jnp.float32)


class ByRows(NamedTuple):
    """A leaf whose stored rows several devices share: how it is read, and how it then comes to lie as it should."""

    wanted: NamedSharding
    read: NamedSharding
    """Rows whole, split further over the devices that share them."""
    shape: tuple[int, ...]
    """While it is read: with rows of zeros behind those of each group where they do not divide."""
    columns: int
    """The dim along a stored row."""
    rows: int
    """The dim across; split over the groups of devices that share rows."""
    group_rows: int
    """Rows that a group shares."""

    def of_leaf(self, parts: Parts) -> Parts:
        """What of the leaf lies in a part of the array that is read."""
        with_zeros = self.wanted.shard_shape(self.shape)[self.rows]
        group, first = divmod(parts[self.rows].start, with_zeros)
        inside = range(first, first + len(parts[self.rows]))[: max(0, self.group_rows - first)]
        mine = range(group * self.group_rows + inside.start, group * self.group_rows + inside.stop)
        return tuple(mine if dim == self.rows else part for dim, part in enumerate(parts))

    def dealt(self, array: jax.Array) -> jax.Array:
        """The leaf where it should lie: an exchange between the devices that share rows. The given array is gone."""

        def deal(x: jax.Array) -> jax.Array:
            x = lax.all_to_all(x, _axes(self.wanted.spec[self.columns]), self.columns, self.rows, tiled=True)
            return lax.slice_in_dim(x, 0, self.group_rows, axis=self.rows)

        specs = self.read.spec, self.wanted.spec
        split = jax.shard_map(deal, mesh=self.wanted.mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False)
        out: jax.Array = jax.block_until_ready(jax.jit(split)(array))
        array.delete()
        return out


def read_by_rows(shape: tuple[int, ...], sharding: jax.sharding.Sharding, chunk: tuple[int, ...]) -> ByRows | None:
    """How to read a leaf whose columns are split more finely than they can be read; None: it is read as it lies.

    chunk: as of ``Source.chunk``, what can only be read together. The last two dims are a matrix.
    """
    if not isinstance(sharding, NamedSharding) or len(shape) < 2:
        return None
    mesh, last = sharding.mesh, len(shape) - 1
    spec = [*sharding.spec, *[None] * (len(shape) - len(sharding.spec))]
    parts = [math.prod(mesh.shape[axis] for axis in _axes(names)) for names in spec]
    for columns, rows in ((last, last - 1), (last - 1, last)):
        if parts[columns] > 1 and shape[columns] // parts[columns] < chunk[columns] and chunk[rows] == 1:
            group_rows = shape[rows] // parts[rows]
            larger, while_read = [*shape], [*spec]
            larger[rows] = -(-group_rows // parts[columns]) * parts[columns] * parts[rows]
            while_read[columns], while_read[rows] = None, (*_axes(spec[rows]), *_axes(spec[columns]))
            wanted, read = NamedSharding(mesh, P(*spec)), NamedSharding(mesh, P(*while_read))
            return ByRows(wanted, read, tuple(larger), columns, rows, group_rows)
    return None


def _axes(names: Any) -> tuple[str, ...]:
    """The mesh axes of one dim of a partition."""
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)
