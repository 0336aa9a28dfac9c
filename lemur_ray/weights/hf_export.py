"""Export of a model to a Hugging Face folder: weights block by block, configs and tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.storage.file_system import file_system
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.hf_config import HuggingFaceError, config_files, tokenizer_files
from lemur_ray.weights.hf_tensors import BLOCK_ROWS, HuggingFaceSink, transposes
from lemur_ray.weights.param_slices import Source, stream


def export(
    source: Source,
    tokenizer: Tokenizer | None,
    folder: str | Path,
    dtypes: dict[str, np.dtype[Any]],
    max_file_bytes: int,
) -> None:
    """Write weights, configs and tokenizer with chat template to a folder or URI, as ``transformers`` loads them.
    dtypes: dtype of every written leaf by path; with the stored dtypes, import and export are bit-exact.
    max_file_bytes: of one safetensors file. Raises HuggingFaceError if the tokenizer is larger than the model, before
    anything is written; OSError if there is no space; the errors of reading the source."""
    config = source.config
    if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
        raise HuggingFaceError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model {config.vocab_size} rows: they do not fit"
        )
    sink = HuggingFaceSink(folder, config, dtypes, max_file_bytes)
    stream(source, sink, transposes, block_rows=BLOCK_ROWS)
    sink.close()
    write_small_files(str(folder), config, tokenizer, dtypes["embed"].name)


def write_small_files(folder: str, config: ModelConfig, tokenizer: Tokenizer | None, dtype: str) -> None:
    """Write tokenizer and configs to a folder or URI; ``config.json`` last, as it identifies a complete model. dtype:
    of the weights, as "bfloat16"."""
    texts = tokenizer_files(tokenizer) if tokenizer is not None else {}
    fs, inner = file_system(folder)
    for name, text in (texts | config_files(config, tokenizer, dtype)).items():
        fs.pipe_file(f"{inner}/{name}", text.encode())
