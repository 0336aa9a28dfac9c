"""Load parameters onto a device mesh: each process reads as many bytes as its devices store, each byte once.

If several devices share a stored row, each would read narrow columns of many rows, with a request per row or reading
whole rows repeatedly. Instead each reads some rows whole, and an all-to-all exchanges the columns."""

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
    """Parameters of ``source`` as float32 arrays with ``shardings``; host memory holds one slice of a leaf at a time.
    Every process makes the same call and reads the share of its devices. config: that of the source, or one with a
    larger vocabulary, whose new rows are the mean of the stored ones."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf, sharding: place_leaf(source, label(path), leaf.shape, sharding),
        abstract_params(config),
        shardings,
    )


def place_leaf(source: Source, name: str, shape: tuple[int, ...], sharding: jax.sharding.Sharding) -> jax.Array:
    """The leaf ``name`` of ``source`` as ``place`` loads it: float32, vocabulary rows filled up to ``shape``."""
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
    """Sharded array of ``shape`` filled from a leaf, zero outside of it; replicas in this process are read once.
    of_leaf: function from the index ranges of a shard of the array to those of the leaf to read for its beginning."""
    stored = leaves(source.config)[name]
    indices = sharding.addressable_devices_indices_map(shape)
    holders: dict[Parts, list[Any]] = {}
    for device, index in indices.items():
        holders.setdefault(normalised(index or (slice(None),) * len(shape), shape), []).append(device)
    pieces = {}
    for parts, devices in holders.items():
        part = read_padded(source, name, of_leaf(parts), stored, np.dtype(np.float32))
        array = filled(part, [len(axis) for axis in parts])
        for device in devices:
            pieces[device] = jax.device_put(array, device)
        jax.block_until_ready(list(pieces.values()))  # before the next slice takes its memory on the host
    arrays = [pieces[device] for device in indices]
    return jax.make_array_from_single_device_arrays(shape, sharding, arrays, dtype=jnp.float32)


class ByRows(NamedTuple):
    """How to load a leaf of which several devices need parts of one stored row: read whole rows, exchange columns."""

    wanted: NamedSharding
    read: NamedSharding
    """Sharding while reading: whole rows, split further over the devices that share them."""
    shape: tuple[int, ...]
    """Shape while reading: rows of each group are padded with zeros to divide over its devices."""
    columns: int
    """Dimension along a stored row."""
    rows: int
    """Dimension across rows; split over groups of devices that share rows."""
    group_rows: int
    """Number of rows of a group."""

    def of_leaf(self, parts: Parts) -> Parts:
        """Index ranges of the leaf for the index ranges ``parts`` of the array of shape ``shape`` that is read."""
        with_zeros = self.wanted.shard_shape(self.shape)[self.rows]
        group, first = divmod(parts[self.rows].start, with_zeros)
        inside = range(first, first + len(parts[self.rows]))[: max(0, self.group_rows - first)]
        mine = range(group * self.group_rows + inside.start, group * self.group_rows + inside.stop)
        return tuple(mine if dim == self.rows else part for dim, part in enumerate(parts))

    def dealt(self, array: jax.Array) -> jax.Array:
        """The leaf with its wanted sharding, after devices exchange columns of the array read. Deletes ``array``."""

        def deal(x: jax.Array) -> jax.Array:
            x = lax.all_to_all(x, _axes(self.wanted.spec[self.columns]), self.columns, self.rows, tiled=True)
            return lax.slice_in_dim(x, 0, self.group_rows, axis=self.rows)

        specs = self.read.spec, self.wanted.spec
        split = jax.shard_map(deal, mesh=self.wanted.mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False)
        out: jax.Array = jax.block_until_ready(jax.jit(split)(array))
        array.delete()
        return out


def read_by_rows(shape: tuple[int, ...], sharding: jax.sharding.Sharding, chunk: tuple[int, ...]) -> ByRows | None:
    """How to load a leaf whose columns are sharded more finely than they can be read; None if each device can read its
    own shard. shape: of the leaf. chunk: shape of the smallest block that can be read. The last two dimensions are a
    matrix. sharding: the wanted one."""
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
    """Mesh axes of one entry of a PartitionSpec (None, a name or a tuple), as a tuple."""
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)
