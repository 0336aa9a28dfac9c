"""Weights on the move: slices of a parameter tree from where they are stored to where they are wanted, never the whole.

A source reads any slice of any leaf, a sink takes slices. ``stream`` carries every block of a model from one to the
other; ``place`` lays a model out on a mesh, each process reading the slices of its own devices, each slice once. Knows
nothing of formats.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import Params, abstract_params

Index = tuple[slice, ...]
Leaf = tuple[str, int]
"""Path of a leaf, and one layer of it (0 where it is not stacked)."""


class Source(Protocol):
    """Somewhere weights come from; safe to use from several threads."""

    config: ModelConfig

    def chunk(self, label: str) -> tuple[int, ...]:
        """Shape of what can only be read together."""

    def dtype(self, label: str) -> np.dtype[Any]:
        """What a leaf is stored in."""

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        """One slice of a leaf in ``dtype`` (by default the stored one); its axes may lie in memory in any order."""


class Sink(Protocol):
    """Somewhere weights go to; ``write`` is safe to call from several threads where ``in_order`` is false."""

    in_order: bool
    """Blocks must come in the order of ``order``."""
    order: list[Leaf]

    def write(self, label: str, index: tuple[range, ...], array: np.ndarray) -> None:
        """Take one block."""


def leaves(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Path and shape of every leaf of the parameter tree."""
    tree = jax.tree_util.tree_leaves_with_path(abstract_params(config))
    return {label(path): leaf.shape for path, leaf in tree}


def label(path: Any) -> str:
    """A key path as its keys with dots between."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def normalised(index: Index, shape: tuple[int, ...]) -> tuple[range, ...]:
    """Slices of an array as ranges."""
    return tuple(range(*part.indices(size)) for part, size in zip(index, shape, strict=True))


def transposed(matrix: np.ndarray) -> np.ndarray:
    """The transposed matrix, row-major; a view where the matrix lies in memory that way round."""
    if matrix.T.flags.c_contiguous:
        return matrix.T
    host = _host()
    # The way onto a device turns blocks in registers: two to ten times faster than numpy, element by element.
    return np.asarray(jax.device_put(matrix.T, host)) if host else np.ascontiguousarray(matrix.T)


@cache
def _host() -> jax.Device | None:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return None


def stream(
    source: Source, sink: Sink, transposes: Callable[[str], bool], *, block_rows: int, workers: int | None = None
) -> None:
    """Carry every block of every leaf from the source to the sink; at most ``workers`` + 1 blocks are held.

    transposes: whether a leaf's last dim is its row in a file (a block then is ``block_rows`` wide there).
    """
    workers = workers or min(4, (os.cpu_count() or 1) + 1)
    blocks = _blocks(source, sink, transposes, block_rows)

    def carry(block: tuple[str, tuple[range, ...]]) -> np.ndarray | None:
        name, parts = block
        array = source.read(name, tuple(slice(part.start, part.stop) for part in parts))
        if sink.in_order:
            return array
        sink.write(name, parts, array)
        return None

    with ThreadPoolExecutor(workers) as pool:
        running: collections.deque[tuple[Any, Future[np.ndarray | None]]] = collections.deque()
        try:
            for block in blocks:
                running.append((block, pool.submit(carry, block)))
                if len(running) > workers:
                    _settle(sink, *running.popleft())
            while running:
                _settle(sink, *running.popleft())
        finally:
            for _, future in running:
                future.cancel()


def _settle(sink: Sink, block: tuple[str, tuple[range, ...]], future: Future[np.ndarray | None]) -> None:
    array = future.result()
    if array is not None:
        sink.write(*block, array)


def _blocks(
    source: Source, sink: Sink, transposes: Callable[[str], bool], block_rows: int
) -> Iterator[tuple[str, tuple[range, ...]]]:
    """Every block of a model, in the order of the sink; layers that cannot be read apart together where it allows."""
    shapes = leaves(source.config)
    for name, layer in sink.order:
        shape, chunk = shapes[name], source.chunk(name)
        stacked = name.startswith("layers.")
        depth = 1 if sink.in_order or not stacked else chunk[0]
        if layer % depth:
            continue
        front = (range(layer, min(layer + depth, shape[0])),) if stacked else ()
        rest = shape[len(front) :]
        if len(rest) == 1:
            yield name, (*front, range(rest[0]))
            continue
        axis = 1 if transposes(name) else 0
        across = chunk[len(front) + axis]
        step = across * max(1, block_rows // across)
        for first in range(0, rest[axis], step):
            parts = [range(size) for size in rest]
            parts[axis] = range(first, min(first + step, rest[axis]))
            yield name, (*front, *parts)


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
        array = _inside(source, name, parts, stored, np.dtype(np.float32))
        for device in devices:
            pieces[device] = jax.device_put(array, device)
        jax.block_until_ready(list(pieces.values()))  # before the next slice takes its memory on the host
    arrays = [pieces[device] for device in indices]
    out = jax.make_array_from_single_device_arrays(shape, sharding, arrays, dtype=jnp.float32)
    return out if shape == stored else _grown(out, stored, sharding)


def _inside(
    source: Source, name: str, parts: tuple[range, ...], stored: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray:
    """A slice of which the source may hold a part only; what lies beyond the stored shape is zero."""
    inside = tuple(slice(min(part.start, size), min(part.stop, size)) for part, size in zip(parts, stored, strict=True))
    array = source.read(name, inside, dtype)
    missing = [(0, len(part) - size) for part, size in zip(parts, array.shape, strict=True)]
    return np.pad(array, missing) if any(after for _, after in missing) else array


def _grown(array: jax.Array, stored: tuple[int, ...], sharding: jax.sharding.Sharding) -> jax.Array:
    """Rows for tokens that published weights lack: each new one is the mean of those there."""
    axis = next(i for i, (size, old) in enumerate(zip(array.shape, stored, strict=True)) if size != old)

    @partial(jax.jit, out_shardings=sharding, donate_argnums=0)
    def fill(x: jax.Array) -> jax.Array:
        mean = jnp.sum(x, axis, keepdims=True) / stored[axis]
        new = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis) >= stored[axis]
        return jnp.where(new, mean, x)

    out: jax.Array = fill(array)
    return out


class GrownWeights:
    """A source with more rows of vocabulary than are stored: each new one is the mean of those there."""

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
        out = _inside(self._source, label, wanted, stored, dtype or self.dtype(label))
        if label in self._means:
            axis = 0 if label == "embed" else 1
            new = len(wanted[axis]) - max(0, min(wanted[axis].stop, stored[axis]) - wanted[axis].start)
            rows = self._means[label][(slice(None), *index[1:]) if axis == 0 else (*index[:1], slice(None))]
            if new:
                np.moveaxis(out, axis, 0)[len(wanted[axis]) - new :] = np.moveaxis(rows, axis, 0)
        return out
