"""A Hugging Face folder from parameters in memory, block by block, on any mesh.

Several processes each write a share of the rows; none ever holds more of a leaf than its devices do and a block beside.
Knows nothing of checkpoints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import jax
import numpy as np
from jax.experimental import multihost_utils

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import Params
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.device_params import LiveWeights, own_rows
from lemur_ray.weights.hf_config import HuggingFaceError, config_files, tokenizer_files
from lemur_ray.weights.hf_tensors import BLOCK_ROWS, DTYPES, HuggingFaceSink, transposes
from lemur_ray.weights.param_slices import label, leaves, stream

MAX_FILE_BYTES = 5 * 10**9
LIVE_ROWS = BLOCK_ROWS // 4
"""Stored rows that leave the devices at once: a block is here up to three times, as it is cut, joined and turned."""


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
    if all(not isinstance(leaf, jax.Array) or leaf.is_fully_addressable for leaf in arrays.values()):
        stream(LiveWeights(params, config, DTYPES[dtype]), sink, transposes, block_rows=LIVE_ROWS)
    else:
        for name, layer in sink.order:
            _write_own_rows(sink, arrays[name], name, layer, DTYPES[dtype])
    sink.writer.close(rename=False)
    _together("rows written")
    if primary:
        sink.writer.finish()
        write_small_files(str(folder), config, tokenizer, dtype)
    _together("folder complete")


def _write_own_rows(sink: HuggingFaceSink, leaf: jax.Array, name: str, layer: int, dtype: np.dtype[Any]) -> None:
    stacked = name.startswith("layers.")
    one_row = leaf.ndim - stacked == 1
    axis = None if one_row else leaf.ndim - (1 if transposes(name) else 2)
    for index, array in own_rows(leaf, layer if stacked else None, axis, dtype, LIVE_ROWS):
        sink.write(name, index, array)


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
