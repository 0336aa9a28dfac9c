"""Llama weights in the Hugging Face layout, in and out: one table from tree paths to tensor names.

torch keeps a linear layer as (out, in), we keep (in, out); every other difference is a name. Import reads only the
slices it is asked for, layer by layer; export mirrors it. Knows nothing of run folders or of training.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import Params, abstract_params, check_config
from lemur_ray.model.tensor_files import Tensor, TensorFileError, TensorFolder, write_folder
from lemur_ray.text.chat import TEMPLATE
from lemur_ray.text.tokenizer import BOS, EOS, PAD, Tokenizer


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


class HuggingFaceError(ValueError):
    """The folder is not a Llama model that this project can hold; the message says what was found and expected."""


def read_config(folder: str | Path) -> ModelConfig:
    """The model's shape from ``config.json``. Raises HuggingFaceError for anything that our Llama is not."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise HuggingFaceError(f"no config.json in {folder}: expected a Hugging Face model folder")
    raw = json.loads(path.read_text())
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    expected = {
        "model_type": (raw.get("model_type"), "llama"),
        "hidden_act": (raw.get("hidden_act", "silu"), "silu"),
        "attention_bias": (raw.get("attention_bias", False), False),
        "mlp_bias": (raw.get("mlp_bias", False), False),
        "rope type": (rope.get("rope_type", rope.get("type", "default")), "default"),
    }
    wrong = [f"{name} is {found!r}, expected {want!r}" for name, (found, want) in expected.items() if found != want]
    if wrong:
        raise HuggingFaceError(f"{path}: {'; '.join(wrong)}: this model is not of the Llama 2 family")
    try:
        config = ModelConfig(
            vocab_size=raw["vocab_size"],
            num_layers=raw["num_hidden_layers"],
            dim=raw["hidden_size"],
            ffn_dim=raw["intermediate_size"],
            num_heads=raw["num_attention_heads"],
            num_kv_heads=raw.get("num_key_value_heads") or raw["num_attention_heads"],
            head_dim=raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
            max_seq_len=raw["max_position_embeddings"],
            rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0),
            norm_eps=raw.get("rms_norm_eps", 1e-6),
            tie_embeddings=raw.get("tie_word_embeddings", False),
        )
    except KeyError as error:
        raise HuggingFaceError(f"{path} lacks {error}: it is not the config of a Llama model") from error
    check_config(config)
    return config


def write_config(folder: str | Path, config: ModelConfig, tokenizer: Tokenizer | None, dtype: str) -> None:
    """``config.json`` and ``generation_config.json``; generation ends at </s> and at <|im_end|>."""
    ids: dict[str, Any] = {}
    if tokenizer is not None:
        ids = {
            "bos_token_id": tokenizer.bos_id,
            "eos_token_id": [tokenizer.eos_id, tokenizer.im_end_id],
            "pad_token_id": tokenizer.pad_id,
        }
    raw = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "num_hidden_layers": config.num_layers,
        "hidden_size": config.dim,
        "intermediate_size": config.ffn_dim,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_seq_len,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": dtype,
        **ids,
    }
    folder = Path(folder)
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": False, **ids}, indent=2) + "\n")
    (folder / "config.json").write_text(json.dumps(raw, indent=2) + "\n")


def write_tokenizer(folder: str | Path, tokenizer: Tokenizer) -> None:
    """``tokenizer.json`` and ``tokenizer_config.json`` with the ChatML template."""
    folder = Path(folder)
    tokenizer.save(folder / "tokenizer.json")
    raw = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "chat_template": "{{ bos_token }}" + TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(raw, indent=2) + "\n")


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
    if tokenizer is not None:
        write_tokenizer(folder, tokenizer)
    write_config(folder, config, tokenizer, dtype)


__all__ = ["TABLE", "HuggingFaceError", "TensorFileError", "export", "read_config", "read_params"]
