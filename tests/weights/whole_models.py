"""Small models held whole, for tests: into a Hugging Face folder and out of any model, the way production goes."""

from pathlib import Path

import jax
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import Params, abstract_params
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.convert import export
from lemur_ray.weights.hf_tensors import DTYPES
from lemur_ray.weights.open_model import HostWeights, open_chat_model
from lemur_ray.weights.param_slices import Source, label, leaves


def write_model(
    params: Params,
    config: ModelConfig,
    tokenizer: Tokenizer | None,
    folder: Path | str,
    *,
    dtype: str = "float32",
    max_file_bytes: int = 5 * 10**9,
) -> None:
    """Parameters in memory as a Hugging Face folder."""
    source = HostWeights(jax.tree.map(np.asarray, params), config)
    export(source, tokenizer, folder, dict.fromkeys(leaves(config), DTYPES[dtype]), max_file_bytes)


def whole(source: Source) -> Params:
    """Every leaf of a source as a float32 array."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: np.ascontiguousarray(
            source.read(label(path), (slice(None),) * len(leaf.shape), np.dtype(np.float32))
        ),
        abstract_params(source.config),
    )


def params_of(spec: Path | str) -> Params:
    """The parameters of the model that a spec names."""
    return whole(open_chat_model(str(spec)).source)
