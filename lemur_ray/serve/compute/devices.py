"""Tensor parallelism: placement of arrays on the devices that compute one model, and programs that run on all of them.

The cache is cut along its kv heads, which are replicated if there are more devices than kv heads. ``Sums`` says how the
products behind attention and in the feed-forward are combined. The devices may belong to several processes; each then
places its own part and runs the same programs in the same order (``lockstep.py``). Knows nothing of models."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from lemur_ray.config import ModelConfig

AXIS = "tp"
"""The mesh axis over which every product is split."""
WHOLE: P = P()
"""Partition of an array that every device holds whole."""
Sums = Literal["gather", "ordered", "all_reduce"]
"""How a product whose inputs lie on several devices is computed.

gather: every device gets all inputs and computes some outputs, so each sum is computed on one device. Two all-gathers a
product; as exact as the product. Used on CPU.
ordered: every device multiplies its inputs; the partial sums are exchanged, added in float32 in an order that the
program fixes, and gathered. The bits of a row do not depend on the load.
all_reduce: as ordered, but added by the network, in an order that may depend on the size of the message."""


@dataclass(frozen=True)
class Devices:
    """The devices that hold one engine's model. ``mesh`` None: one device, and programs without a mesh."""

    mesh: Mesh | None = None

    @staticmethod
    def take(count: int = 1) -> "Devices":
        """The first ``count`` of jax's devices; 0: all of them.
        Raises ValueError if there are fewer, or if several processes would not use all of theirs."""
        devices = jax.devices()
        count = count or len(devices)
        if count > len(devices) or (jax.process_count() > 1 and count != len(devices)):
            raise ValueError(
                f"tensor_parallel is {count}, but there are {len(devices)} {devices[0].platform} device(s) in "
                f"{jax.process_count()} process(es): use {len(devices)}, or 0 for all there are"
            )
        if count == 1:
            return ONE
        ordered = sorted(devices, key=lambda device: (device.process_index, device.id))[:count]
        return Devices(Mesh(np.asarray(ordered), (AXIS,), axis_types=(AxisType.Auto,)))

    @property
    def parts(self) -> int:
        """Number of devices, each with one part of every matrix and of the cache."""
        return self.mesh.size if self.mesh else 1

    @property
    def own_parts(self) -> range:
        """Indices (from 0) of the parts on this process's devices."""
        if self.mesh is None:
            return range(1)
        mine = [n for n, d in enumerate(self.mesh.devices.flat) if d.process_index == jax.process_index()]
        return range(mine[0], mine[-1] + 1)

    @property
    def axis(self) -> str | None:
        """The axis to gather over inside a program; None where there is nothing to gather."""
        return AXIS if self.mesh else None

    def _sharding(self, spec: P) -> NamedSharding:
        assert self.mesh is not None
        return NamedSharding(self.mesh, spec)

    def _whole_shape(self, part: tuple[int, ...], spec: P) -> tuple[int, ...]:
        """Shape of a whole array, from the shape of one device's part."""
        names = [*spec, *[None] * (len(part) - len(spec))]
        return tuple(size * (self.parts if name else 1) for size, name in zip(part, names, strict=True))

    def assemble(self, part: Callable[[int], Any], specs: Any, old: Any = None) -> Any:
        """Build a tree of arrays on the devices. specs: partitions, as a prefix of the tree. part: makes the arrays of
        device n (from 0) on the host; called for the devices of this process, one after the other. old: a tree of
        arrays, which are deleted before the first of the new ones is placed, but after it was made."""
        where = [None] if self.mesh is None else [self.mesh.devices.flat[n] for n in self.own_parts]
        placed = []
        # One by one: the host may only have memory for the part of one device.
        for n, device in zip(self.own_parts, where, strict=True):
            made = part(n)
            for array in jax.tree.leaves(old):
                array.delete()
            placed.append(jax.block_until_ready(jax.device_put(made, device)))
            del made  # else it stays beside the next one
        if self.mesh is None:
            return placed[0]

        def one(spec: P, *pieces: Any) -> jax.Array:
            shape, sharding = self._whole_shape(pieces[0].shape, spec), self._sharding(spec)
            return jax.make_array_from_single_device_arrays(shape, sharding, [*pieces])

        return jax.tree.map(one, jax.tree.broadcast(specs, placed[0], is_leaf=_is_spec), *placed, is_leaf=_is_spec)

    def abstract(self, make: Callable[[], Any], spec: P) -> Any:
        """Tree of shapes and dtypes (ShapeDtypeStruct) of whole arrays. make: returns the tree of one device's parts;
        only traced. spec: the one PartitionSpec that applies to every array."""
        return jax.tree.map(
            lambda part: jax.ShapeDtypeStruct(self._whole_shape(part.shape, spec), part.dtype), jax.eval_shape(make)
        )

    def allocate(self, make: Callable[[], Any], spec: P) -> Any:
        """Arrays of zeros on the devices, without memory on the host. make: returns the tree of one device's zeros;
        spec: the one PartitionSpec that applies to every array."""
        if self.mesh is None:
            return make()
        sharding = self._sharding(spec)
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype, device=sharding), self.abstract(make, spec))

    def program(self, function: Callable, inputs: Any, outputs: Any, donate: tuple[int, ...] = ()) -> Any:
        """Jit ``function``, which every device runs on its own parts (``shard_map``; on one device a plain ``jit``).
        inputs, outputs: trees of PartitionSpecs; donate: indices of arguments whose memory is reused."""
        if self.mesh is None:
            return jax.jit(function, donate_argnums=donate)
        split = jax.shard_map(function, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)

        def shardings(specs: Any) -> Any:
            return jax.tree.map(self._sharding, specs, is_leaf=_is_spec)

        return jax.jit(split, in_shardings=shardings(inputs), out_shardings=shardings(outputs), donate_argnums=donate)


ONE: Devices = Devices()


def present(count: int) -> tuple[list[Any], int]:
    """This process's devices, and the number of devices of all processes that share a model; count 0 or less: all."""
    return jax.local_devices(), count if count > 0 else jax.device_count()


def minimum_of_processes(value: int) -> int:
    """The smallest value, of up to 31 bits, of all processes of this jax.distributed, each of which must call this."""
    return int(multihost_utils.process_allgather(np.int32(value)).min()) if jax.process_count() > 1 else value


def _is_spec(x: Any) -> bool:
    return isinstance(x, P)


def gather_columns(x_TI: jax.Array, axis: str | None) -> jax.Array:
    """Inside a program: x with the columns of all devices, in device order. axis: ``Devices.axis``; None: only x."""
    return x_TI if axis is None else lax.all_gather(x_TI, axis, axis=1, tiled=True)


def total(part_TD: jax.Array, axis: str, sums: Sums) -> jax.Array:
    """Inside a program: the sum over devices of their partial products (T, D), whole on every device, in the dtype of
    ``part_TD``. sums: "ordered" or "all_reduce". axis: ``Devices.axis``."""
    if sums == "all_reduce":
        return lax.psum(part_TD, axis)
    # In tiles: columns as an axis of their own would be copied twice before they are sent.
    pieces = lax.all_to_all(part_TD, axis, 1, 0, tiled=True)
    pieces = pieces.reshape(-1, part_TD.shape[0], pieces.shape[1]).astype(jnp.float32)
    while len(pieces) > 1:
        if len(pieces) % 2:
            pieces = jnp.pad(pieces, ((0, 1), (0, 0), (0, 0)))
        pieces = pieces[: len(pieces) // 2] + pieces[len(pieces) // 2 :]
    return gather_columns(pieces[0].astype(part_TD.dtype), axis)


def part_of(config: ModelConfig, parts: int) -> ModelConfig:
    """The model's config with the number of heads that each of ``parts`` devices computes, at least one kv head."""
    return replace(config, num_heads=config.num_heads // parts, num_kv_heads=max(1, config.num_kv_heads // parts))


def can_split(config: ModelConfig, parts: int) -> bool:
    """Whether ``parts`` devices can share a model: they must divide its heads, feed-forward and model widths, and
    divide its kv heads or be a multiple of them."""
    kv_heads = config.num_kv_heads
    divides = not any(size % parts for size in (config.num_heads, config.ffn_dim, config.dim))
    return divides and (kv_heads % parts == 0 or parts % kv_heads == 0)


def splits(config: ModelConfig) -> list[int]:
    """All numbers of devices, ascending from 1, that can share a model."""
    return [n for n in range(1, config.num_heads + 1) if can_split(config, n)]


def check_split(config: ModelConfig, parts: int) -> None:
    """Raise ValueError if ``parts`` devices cannot share a model; it names the model's sizes and possible numbers."""
    if not can_split(config, parts):
        *others, last = map(str, splits(config))
        raise ValueError(
            f"tensor_parallel {parts} does not fit this model: it must divide num_heads {config.num_heads}, ffn_dim "
            f"{config.ffn_dim} and dim {config.dim}, and divide num_kv_heads {config.num_kv_heads} or be a multiple of "
            f"it: use {', '.join(others)}{' or ' if others else ''}{last}"
        )
