"""A Hugging Face folder from parameters in memory, one layer of one leaf at a time, on any mesh.

Each process writes the rows that its own devices hold; no process ever holds a whole leaf. Knows nothing of
checkpoints: those are carried over by ``weights.stream``.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import fsspec
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from lemur_ray.config import ModelConfig
from lemur_ray.model.hf import DTYPES, HuggingFaceSink, transposes
from lemur_ray.model.hf_config import HuggingFaceError, config_files, tokenizer_files
from lemur_ray.model.llama import Params
from lemur_ray.model.weights import label, leaves, normalised
from lemur_ray.text.tokenizer import Tokenizer

MAX_FILE_BYTES = 5 * 10**9


def export(
    params: Params,
    config: ModelConfig,
    tokenizer: Tokenizer | None,
    folder: str | Path,
    *,
    dtype: str = "float32",
    max_file_bytes: int = MAX_FILE_BYTES,
) -> None:
    """Write a folder that ``transformers`` loads: weights, configs, tokenizer with chat template; config.json last.

    Every process of ``jax.distributed`` calls it alike; several need a folder that all of them see.
    dtype: "float32" or "bfloat16". Import followed by export in the stored dtype gives back every bit.
    """
    check_tokenizer(tokenizer, config)
    if dtype not in DTYPES:
        raise HuggingFaceError(f"dtype {dtype!r}: choose one of {', '.join(DTYPES)}")
    arrays = {label(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    if {name: leaf.shape for name, leaf in arrays.items()} != leaves(config):
        wrong = sorted(arrays.keys() ^ leaves(config).keys()) or [
            f"{name} {arrays[name].shape}, expected {shape}"
            for name, shape in leaves(config).items()
            if arrays[name].shape != shape
        ]
        raise HuggingFaceError(f"parameter tree differs from the config: {wrong}")
    primary = jax.process_index() == 0
    dtypes = dict.fromkeys(arrays, DTYPES[dtype])
    if not primary:
        _together("files laid out")
    sink = HuggingFaceSink(folder, config, dtypes, max_file_bytes, primary=primary)
    if primary:
        _together("files laid out")
    for name, layer in sink.order:
        rows = _rows(arrays[name], name, layer)
        while rows:
            sink.write(name, *rows.pop(0))  # let go of before the next layer is fetched
    sink.writer.close(rename=False)
    _together("rows written")
    if primary:
        sink.writer.finish()
        write_small_files(str(folder), config, tokenizer, dtype)
    _together("folder complete")


def check_tokenizer(tokenizer: Tokenizer | None, config: ModelConfig) -> None:
    """Raises HuggingFaceError where the model has fewer rows than the tokenizer has tokens."""
    if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
        raise HuggingFaceError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model {config.vocab_size} rows: they do not fit"
        )


def write_small_files(folder: str, config: ModelConfig, tokenizer: Tokenizer | None, dtype: str) -> None:
    """Tokenizer and configs into a folder or URI; config.json last, as a folder without one is no model."""
    texts = tokenizer_files(tokenizer) if tokenizer is not None else {}
    fs, inner = fsspec.url_to_fs(folder)
    for name, text in (texts | config_files(config, tokenizer, dtype)).items():
        fs.pipe_file(f"{inner}/{name}", text.encode())


def _together(what: str) -> None:
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(what)


def _rows(leaf: Any, name: str, layer: int) -> list[tuple[tuple[range, ...], np.ndarray]]:
    """This process's share of one layer as whole stored rows, with their places in the leaf."""
    stacked = name.startswith("layers.")
    where = tuple(range(size) for size in leaf.shape)
    if stacked:
        where = (range(layer, layer + 1), *where[1:])
    if not isinstance(leaf, jax.Array):
        return [(where, leaf[layer : layer + 1] if stacked else leaf)]
    if leaf.is_fully_addressable:
        return [(where, _gathered(leaf, layer if stacked else None))]
    axis = leaf.ndim - 1 if transposes(name) else leaf.ndim - 2
    spread = _spread(leaf.sharding, leaf.shape, axis if leaf.ndim - stacked > 1 else None)
    piece = _taken(spread, stacked)(leaf, layer)
    shards = [shard for shard in piece.addressable_shards if shard.replica_id == 0]
    out = []
    for shard in shards:
        inside = normalised(shard.index, piece.shape)
        parts = (where[0], *inside[1:]) if stacked else inside
        out.append((parts, np.asarray(shard.data)))
    return sorted(out, key=lambda pair: [part.start for part in pair[0]])


def _gathered(leaf: jax.Array, layer: int | None) -> np.ndarray:
    """One layer of a leaf (or all of one that has none) from the devices of this process, put together on the host."""
    front = [] if layer is None else [1]
    out = np.empty([*front, *leaf.shape[len(front) :]], leaf.dtype)
    for shard in leaf.addressable_shards:
        if shard.replica_id == 0:
            inside = normalised(shard.index, leaf.shape)
            place = tuple(slice(part.start, part.stop) for part in inside)
            if layer is None:
                out[place] = np.asarray(shard.data)
            elif layer in inside[0]:
                piece = _taken(shard.data.sharding, True)(shard.data, layer - inside[0].start)
                out[(slice(None), *place[1:])] = np.asarray(piece)
    return out


def _spread(sharding: Any, shape: tuple[int, ...], axis: int | None) -> Any:
    """Stored rows over as many devices of the mesh as divide them; columns in one piece."""
    if not isinstance(sharding, NamedSharding):
        return sharding
    names: list[str] = []
    parts = 1
    for name, size in sharding.mesh.shape.items():
        if axis is not None and shape[axis] % (parts * size) == 0:
            names.append(name)
            parts *= size
    spec = [tuple(names) if i == axis else None for i in range(len(shape))]
    return NamedSharding(sharding.mesh, PartitionSpec(*spec))


@cache
def _taken(sharding: Any, stacked: bool) -> Any:
    """One layer of a leaf (a leading axis of 1 stays), laid out anew; compiled once for all layers."""

    @partial(jax.jit, out_shardings=sharding)
    def take(leaf: jax.Array, layer: int) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(leaf, layer, 1, 0) if stacked else leaf

    return take
