"""Read and write the small files of a Hugging Face model folder: config, generation config and tokenizer files.

A config with settings that this project's Llama does not support is rejected.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lemur_ray.config import ModelConfig, RopeScaling
from lemur_ray.model.llama import check_config
from lemur_ray.storage.file_system import file_system
from lemur_ray.text.chatml import WITH_BOS
from lemur_ray.text.special_tokens import BOS, CONFIG, EOS, GENERATION, PAD, json_file
from lemur_ray.text.tokenizer import Tokenizer


class HuggingFaceError(ValueError):
    """A Hugging Face folder is inconsistent or no Llama model that this project supports; the message says why."""


def read_config(folder: str | Path) -> ModelConfig:
    """Model configuration from the ``config.json`` of a folder or URI.

    Both spellings of the rotary embedding are read: ``rope_theta`` with ``rope_scaling``, and ``rope_parameters``.
    Raises HuggingFaceError if it is missing, damaged or not of a supported Llama.
    """
    path = f"{folder}/config.json"
    fs, inner = file_system(path)
    if not fs.isfile(inner):
        raise HuggingFaceError(f"no config.json in {folder}: expected a Hugging Face model folder")
    try:
        raw = json.loads(fs.cat_file(inner))
    except ValueError as error:
        raise HuggingFaceError(f"{path} is not JSON ({error}): copy it again") from error
    try:
        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        _refuse_others(raw, rope, path)
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
            rope_scaling=_scaling(rope, raw["max_position_embeddings"]),
            norm_eps=raw.get("rms_norm_eps", 1e-6),
            tie_embeddings=raw.get("tie_word_embeddings", False),
        )
    except KeyError as error:
        raise HuggingFaceError(f"{path} lacks {error}: it is not the config of a Llama model") from error
    except HuggingFaceError:
        raise
    except (TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise HuggingFaceError(f"{path}: {error}: it is not the config of a Llama model") from error
    check_config(config)
    return config


def _refuse_others(raw: dict[str, Any], rope: dict[str, Any], path: str) -> None:
    """Raise HuggingFaceError naming every setting of a ``config.json`` that is not supported. rope: its rotary part."""
    kind = _kind(rope)
    checks: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "model_type": (raw.get("model_type"), ("llama",)),
        "hidden_act": (raw.get("hidden_act", "silu"), ("silu",)),
        "attention_bias": (raw.get("attention_bias", False), (False,)),
        "mlp_bias": (raw.get("mlp_bias", False), (False,)),
        "rope type": (kind, ("default", "linear", "llama3")),
        "partial_rotary_factor": (
            rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0, (1.0,),
        ),
        "quantization_config": (raw.get("quantization_config"), (None,)),
    }  # fmt: skip
    wrong = [
        f"{name} is {value!r}, expected {' or '.join(map(repr, known))}"
        for name, (value, known) in checks.items()
        if value not in known
    ]
    if wrong:
        raise HuggingFaceError(f"{path}: {'; '.join(wrong)}: this model is not of the Llama family that is held here")


def _kind(rope: dict[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type", "default"))


def _scaling(rope: dict[str, Any], max_seq_len: int) -> RopeScaling:
    """Scaling of the rotary embedding from its part of ``config.json``. Raises KeyError for a missing number."""
    if _kind(rope) == "linear":
        return RopeScaling("linear", float(rope["factor"]))
    if _kind(rope) == "llama3":
        return RopeScaling(
            "llama3", float(rope["factor"]), float(rope["low_freq_factor"]), float(rope["high_freq_factor"]),
            int(rope.get("original_max_position_embeddings") or max_seq_len),
        )  # fmt: skip
    return RopeScaling()


def _rope_fields(config: ModelConfig) -> dict[str, Any]:
    """Rotary fields of ``config.json`` in two spellings: for transformers 4, vLLM and others; for transformers 5."""
    scaling = config.rope_scaling
    fields: dict[str, Any] = {"rope_type": "default"}
    if scaling.kind != "none":
        fields = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind == "llama3":
        fields |= {
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_seq_len,
        }
    old = {} if scaling.kind == "none" else {"rope_scaling": fields}
    return {"rope_theta": config.rope_theta, **old, "rope_parameters": {**fields, "rope_theta": config.rope_theta}}


def config_files(config: ModelConfig, tokenizer: Tokenizer | None, dtype: str) -> dict[str, str]:
    """Texts of ``generation_config.json`` and ``config.json`` by name; generation stops at all ``stop_ids``.

    dtype: torch's name of the weights' dtype, "float32" or "bfloat16".
    """
    ids: dict[str, Any] = {}
    if tokenizer is not None:
        stops = sorted(tokenizer.stop_ids, key=lambda i: (i != tokenizer.eos_id, i))
        named = {"bos_token_id": tokenizer.bos_id, "eos_token_id": stops or None, "pad_token_id": tokenizer.pad_id}
        ids = {name: value for name, value in named.items() if value is not None}
    raw = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": config.vocab_size,
        "num_hidden_layers": config.num_layers, "hidden_size": config.dim, "intermediate_size": config.ffn_dim,
        "num_attention_heads": config.num_heads, "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim, "max_position_embeddings": config.max_seq_len, **_rope_fields(config),
        "rms_norm_eps": config.norm_eps, "tie_word_embeddings": config.tie_embeddings, "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "torch_dtype": dtype, "dtype": dtype, **ids,
    }  # fmt: skip
    sampling = (json_file(tokenizer.files, GENERATION) if tokenizer else {}) or {"do_sample": False}
    return {
        "generation_config.json": json.dumps({**sampling, **ids}, indent=2) + "\n",
        "config.json": json.dumps(raw, indent=2) + "\n",
    }


def tokenizer_config() -> dict[str, Any]:
    """Content of ``tokenizer_config.json`` for this project's vocabularies: special tokens and the ChatML template."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS, "pad_token": PAD,
        "clean_up_tokenization_spaces": False, "chat_template": WITH_BOS,
    }  # fmt: skip


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, str]:
    """Texts of the tokenizer's files by name, with a ``tokenizer_config.json`` if the vocabulary is this project's."""
    own = tokenizer_config()
    if tokenizer.files:
        own.pop("chat_template")  # a foreign tokenizer has its own template
    written = {} if tokenizer.files and not tokenizer.is_ours else {CONFIG: json.dumps(own, indent=2) + "\n"}
    return {**written, **tokenizer.to_files()}
