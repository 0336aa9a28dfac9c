"""The device mesh of a run, and shardings of parameters, their copies and batches by the rule table in ``layout``."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from lemur_ray.config import MeshConfig, ModelConfig
from lemur_ray.config.mesh import axis_sizes
from lemur_ray.model.layout import MESH_AXES, ROWS, spec
from lemur_ray.model.llama import Params, abstract_params, logical_axes


def make_mesh(config: MeshConfig, devices: list[Any] | None = None) -> Mesh:
    """The mesh (dcn, fsdp, tp) of ``devices`` (default: all). Raises ValueError if the axis sizes do not match them."""
    devices = jax.devices() if devices is None else devices
    shape = axis_sizes(config, len(devices))
    return Mesh(np.asarray(devices).reshape(shape), MESH_AXES, axis_types=(AxisType.Auto,) * 3)


def param_shardings(config: ModelConfig, mesh: Mesh) -> Params:
    """The parameter tree with the NamedSharding of each leaf."""

    def one(path: Any, leaf: Any, axes: tuple[str, ...]) -> NamedSharding:
        label = jax.tree_util.keystr(path, simple=True, separator=".")
        return NamedSharding(mesh, spec(axes, leaf.shape, mesh, label))

    return jax.tree_util.tree_map_with_path(one, abstract_params(config), logical_axes(config))


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Sharding of arrays (rows, ...) of any rank: rows split over all data-parallel devices."""
    return NamedSharding(mesh, P(ROWS))


def to_devices(batch: Mapping[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """Global batch as sharded arrays, from this process's rows of it: arrays (rows, ...) by name, of which the row
    numbers ``row`` are left out. Every process must call it. Rows are read in process order; if the mesh has another
    order, devices exchange them."""
    place, as_read = batch_sharding(mesh), batch_sharding(by_process(mesh))
    arrays = {
        name: jax.make_array_from_process_local_data(as_read, array) for name, array in batch.items() if name != "row"
    }
    return arrays if as_read.mesh == mesh else jax.device_put(arrays, place)


@lru_cache(maxsize=16)
def by_process(mesh: Mesh) -> Mesh:
    """Copy of the mesh with its devices sorted by process, and so by slice."""
    devices = sorted(mesh.devices.flat, key=lambda device: (device.process_index, device.id))
    return Mesh(np.asarray(devices).reshape(mesh.devices.shape), mesh.axis_names, axis_types=mesh.axis_types)


def replicated(mesh: Mesh) -> NamedSharding:
    """Sharding that puts the whole array on every device."""
    return NamedSharding(mesh, P())


def like_params(tree: Any, config: ModelConfig, mesh: Mesh) -> Any:
    """Shardings for a tree with copies of parameters, such as optimizer moments. A leaf gets the sharding of the
    parameter whose path is the end of its path, if shapes agree; others are replicated."""
    return placed_like(tree, abstract_params(config), param_shardings(config, mesh), mesh)


def placed_like(tree: Any, shapes: Any, shardings: Any, mesh: Mesh) -> Any:
    """Shardings for ``tree``, of which leaves may be copies of parameters, by `like_params`'s rule. shapes, shardings:
    trees with the shape and the sharding of every parameter."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(shapes), jax.tree.leaves(shardings), strict=True)
    known = {tuple(key.key for key in path): (leaf.shape, sharding) for (path, leaf), sharding in pairs}

    def one(path: Any, leaf: Any) -> NamedSharding:
        names = tuple(getattr(key, "key", getattr(key, "name", None)) for key in path)
        for start in range(len(names)):
            if names[start:] in known and known[names[start:]][0] == leaf.shape:
                return known[names[start:]][1]
        return replicated(mesh)

    return jax.tree_util.tree_map_with_path(one, tree)
