"""A model laid out on a mesh: each process reads the slices of its own devices, each slice once.

Knows nothing of formats.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import Params, abstract_params
from lemur_ray.weights.grown_vocabulary import fill_new_rows, read_padded
from lemur_ray.weights.param_slices import Source, label, leaves, normalised


def place(source: Source, config: ModelConfig, shardings: Params) -> Params:
    """The parameters as float32 arrays on a mesh; of the host's memory one slice of one leaf is used at a time.

    Every process calls it alike and reads the slices of its own devices, one that several of them hold once.
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
    indices = sharding.addressable_devices_indices_map(shape)
    holders: dict[tuple[range, ...], list[Any]] = {}
    for device, index in indices.items():
        holders.setdefault(normalised(index or (slice(None),) * len(shape), shape), []).append(device)
    pieces = {}
    for parts, devices in holders.items():
        array = read_padded(source, name, parts, stored, np.dtype(np.float32))
        for device in devices:
            pieces[device] = jax.device_put(array, device)
        jax.block_until_ready(list(pieces.values()))  # before the next slice takes its memory on the host
    arrays = [pieces[device] for device in indices]
    out = jax.make_array_from_single_device_arrays(shape, sharding, arrays, dtype=jnp.float32)
    return out if shape == stored else fill_new_rows(out, stored, sharding)
