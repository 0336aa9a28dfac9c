"""Interfaces of weight sources and sinks, and a streaming copy between them in blocks.

A leaf is an array of the parameter tree, its label the dotted path. A source reads any slice of any leaf, a sink writes
slices, ``stream`` copies all blocks of a model from one to the other without holding the whole."""

import collections
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, Protocol

import jax
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import abstract_params

Index = tuple[slice, ...]
Leaf = tuple[str, int]
"""(label of a leaf, number of one of its layers; 0 if it is not stacked)."""


class Source(Protocol):
    """Interface of a readable set of model weights; implementations are safe to use from several threads."""

    config: ModelConfig

    def chunk(self, label: str) -> tuple[int, ...]:
        """Shape of the smallest block of the leaf ``label`` that can be read without reading more than it holds."""

    def dtype(self, label: str) -> np.dtype[Any]:
        """Dtype of the stored leaf ``label``."""

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        """One slice of the leaf ``label`` in ``dtype`` (default: the stored one), in any memory order. index: a slice
        for each dimension."""


class Sink(Protocol):
    """Interface of a writable set of model weights; ``write`` is thread-safe if ``in_order`` is False."""

    in_order: bool
    """Whether blocks must be written in the order of ``order``."""
    order: list[Leaf]

    def write(self, label: str, index: tuple[range, ...], array: np.ndarray) -> None:
        """Write one block of the leaf ``label``. index: its range in each dimension; array: its content."""


def leaves(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every leaf of a model's parameter tree by its label."""
    tree = jax.tree_util.tree_leaves_with_path(abstract_params(config))
    return {label(path): leaf.shape for path, leaf in tree}


def label(path: Any) -> str:
    """Dotted text of a jax key path, for example layers.wq."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def normalised(index: Index, shape: tuple[int, ...]) -> tuple[range, ...]:
    """Slices of an array of ``shape`` as ranges with explicit bounds."""
    return tuple(range(*part.indices(size)) for part, size in zip(index, shape, strict=True))


def transposed(matrix: np.ndarray) -> np.ndarray:
    """The transpose of a matrix, in row-major memory order: a view if the matrix is column-major, else a copy."""
    if matrix.T.flags.c_contiguous:
        return matrix.T
    host = _host()
    # A device transfer transposes blocks in registers: two to ten times faster than numpy.
    return np.asarray(jax.device_put(matrix.T, host)) if host else np.ascontiguousarray(matrix.T)


@cache
def _host() -> jax.Device | None:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # excluded by JAX_PLATFORMS
        return None


def stream(
    source: Source, sink: Sink, transposes: Callable[[str], bool], *, block_rows: int, workers: int | None = None
) -> None:
    """Copy all leaves from the source to the sink block by block, with at most ``workers`` + 1 blocks in memory; the
    caller closes the sink. workers: threads, by default up to 4. transposes: whether a leaf (by label) is stored
    transposed in the sink. block_rows: about the stored rows per block. Raises what reading and writing raise."""
    workers = workers or min(4, (os.cpu_count() or 1) + 1)
    blocks = _blocks(source, sink, transposes, block_rows)

    def copy(block: tuple[str, tuple[range, ...]]) -> np.ndarray | None:
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
                running.append((block, pool.submit(copy, block)))
                if len(running) > workers:
                    _finish(sink, *running.popleft())
            while running:
                _finish(sink, *running.popleft())
        finally:
            for _, future in running:
                future.cancel()


def _finish(sink: Sink, block: tuple[str, tuple[range, ...]], future: Future[np.ndarray | None]) -> None:
    array = future.result()
    if array is not None:
        sink.write(*block, array)


def _blocks(
    source: Source, sink: Sink, transposes: Callable[[str], bool], block_rows: int
) -> Iterator[tuple[str, tuple[range, ...]]]:
    """Yield (label, index ranges) of all blocks in the order of the sink; layers of one chunk share a block unless
    ``sink.in_order``."""
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
