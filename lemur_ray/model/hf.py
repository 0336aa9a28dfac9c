"""Llama weights in the Hugging Face layout, in and out: one table from tree paths to tensor names.

torch keeps a linear layer as (out, in), we keep (in, out); every other difference is a name. Import reads only the
slices it is asked for, layer by layer; export mirrors it. Knows nothing of run folders or of training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.model.hf_config import HuggingFaceError, config_files, read_config, tokenizer_files
from lemur_ray.model.llama import Params, abstract_params
from lemur_ray.model.tensor_files import Tensor, TensorFileError, TensorFolder, write_folder
from lemur_ray.text.tokenizer import Tokenizer


class Entry(NamedTuple):
    """How one leaf of the parameter tree is stored."""

    name: str
    """Tensor name; {} stands for the layer of a stacked leaf."""
    transpose: bool


TABLE: dict[str, Entry] = {
    "embed": Entry("model.embed_tokens.weight", False),
    "layers.attn_norm": Entry("model.layers.{}.input_layernorm.weight", False),
    "layers.wq": Entry("model.layers.{}.self_attn.q_proj.weight", True),
    "layers.wk": Entry("model.layers.{}.self_attn.k_proj.weight", True),
    "layers.wv": Entry("model.layers.{}.self_attn.v_proj.weight", True),
    "layers.wo": Entry("model.layers.{}.self_attn.o_proj.weight", True),
    "layers.mlp_norm": Entry("model.layers.{}.post_attention_layernorm.weight", False),
    "layers.gate": Entry("model.layers.{}.mlp.gate_proj.weight", True),
    "layers.up": Entry("model.layers.{}.mlp.up_proj.weight", True),
    "layers.down": Entry("model.layers.{}.mlp.down_proj.weight", True),
    "final_norm": Entry("model.norm.weight", False),
    "head": Entry("lm_head.weight", True),
}


def _label(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _read_slices(files: TensorFolder, label: str, shape: tuple[int, ...], index: Any) -> np.ndarray:
    """One slice of a leaf as float32, from the layers and the bytes that it needs."""
    entry = TABLE[label]
    stacked = "{}" in entry.name

    def one(name: str, want: tuple[int, ...], part: tuple[slice, ...]) -> np.ndarray:
        view = files.view(name)
        stored = view.T if entry.transpose else view
        if stored.shape != want:
            raise HuggingFaceError(
                f"{name} in {files.folder} has shape {view.shape}, the config says "
                f"{want[::-1] if entry.transpose else want}: config.json and weights do not belong together"
            )
        out = np.asarray(stored[part], dtype=np.float32)
        if not np.isfinite(out).all():
            raise HuggingFaceError(f"{name} in {files.folder} holds NaN or infinity: the file is damaged")
        return out

    if not stacked:
        return one(entry.name, shape, index)
    layers = range(*index[0].indices(shape[0]))
    return np.stack([one(entry.name.format(layer), shape[1:], index[1:]) for layer in layers])


def read_params(folder: str | Path, config: ModelConfig, shardings: Params | None = None) -> Params:
    """The parameter tree of a model folder, float32.

    Without shardings: numpy arrays. With a tree of shardings: global jax arrays, of which every process reads the bytes
    of its own shards only, so the peak of host memory is one shard of one tensor.
    Raises TensorFileError (missing or truncated file, missing tensor) or HuggingFaceError (shape, NaN).
    """
    files = TensorFolder(folder)
    known = {entry.name.split("{}")[-1] for entry in TABLE.values()} | {".self_attn.rotary_emb.inv_freq"}
    strange = [name for name in files.names() if not any(name.endswith(end) for end in known)]
    if strange:
        raise HuggingFaceError(f"{folder} holds tensors that our Llama has not: {', '.join(strange[:3])}")

    def leaf(path: Any, abstract: Any, sharding: Any = None) -> Any:
        label = _label(path)
        if sharding is None:
            return _read_slices(files, label, abstract.shape, (slice(None),) * len(abstract.shape))
        return jax.make_array_from_callback(
            abstract.shape, sharding, lambda index: _read_slices(files, label, abstract.shape, index)
        )

    shapes = abstract_params(config)
    trees = (shapes,) if shardings is None else (shapes, shardings)
    return jax.tree_util.tree_map_with_path(leaf, *trees)


def _tensors(params: Params, config: ModelConfig) -> list[Tensor]:
    """Every tensor of the export, in the order of the layers; arrays are fetched one at a time."""
    leaves = {_label(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
    expected = {_label(path) for path, _ in jax.tree_util.tree_leaves_with_path(abstract_params(config))}
    if leaves.keys() != expected:
        raise HuggingFaceError(f"parameter tree differs from the config: {sorted(leaves.keys() ^ expected)}")

    def tensor(label: str, layer: int | None) -> Tensor:
        entry, leaf = TABLE[label], leaves[label]
        shape = leaf.shape if layer is None else leaf.shape[1:]

        def make() -> np.ndarray:
            array = np.asarray(leaf if layer is None else leaf[layer])
            return array.T if entry.transpose else array

        return entry.name.format(layer), shape[::-1] if entry.transpose else shape, make

    stacked = [label for label in TABLE if label.startswith("layers.")]
    out = [tensor("embed", None)]
    out += [tensor(label, layer) for layer in range(config.num_layers) for label in stacked]
    return out + [tensor(label, None) for label in ("final_norm", "head") if label in leaves]


def export(
    params: Params,
    config: ModelConfig,
    tokenizer: Tokenizer | None,
    folder: str | Path,
    *,
    dtype: str = "float32",
    max_file_bytes: int = 5 * 10**9,
) -> None:
    """Write a folder that ``transformers`` loads: weights, configs, tokenizer with chat template; config.json last.

    dtype: "float32" or "bfloat16". Import followed by export in the stored dtype gives back every bit.
    """
    if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
        raise HuggingFaceError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model {config.vocab_size} rows: they do not fit"
        )
    kinds = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(jax.numpy.bfloat16)}
    if dtype not in kinds:
        raise HuggingFaceError(f"dtype {dtype!r}: choose one of {', '.join(kinds)}")
    write_folder(folder, _tensors(params, config), kinds[dtype], max_file_bytes)
    texts = tokenizer_files(tokenizer) if tokenizer is not None else {}
    for name, text in (texts | config_files(config, tokenizer, dtype)).items():
        (Path(folder) / name).write_text(text, encoding="utf-8")


__all__ = ["TABLE", "HuggingFaceError", "TensorFileError", "export", "read_config", "read_params"]
