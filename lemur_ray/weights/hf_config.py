"""Read and write the small files of a Hugging Face model folder: config, generation config and tokenizer files."""

import json
from pathlib import Path
from typing import Any

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import check_config
from lemur_ray.storage.file_system import file_system
from lemur_ray.text.chatml import WITH_BOS
from lemur_ray.text.special_tokens import BOS, CONFIG, EOS, GENERATION, PAD, json_file
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.families import HuggingFaceError, config_of, fields_of


def raw_config(folder: str | Path) -> Any:
    """Parsed ``config.json`` of a folder or URI. Raises HuggingFaceError if it is missing or no JSON."""
    path = f"{folder}/config.json"
    fs, inner = file_system(path)
    if not fs.isfile(inner):
        raise HuggingFaceError(f"no config.json in {folder}: expected a Hugging Face model folder")
    try:
        return json.loads(fs.cat_file(inner))
    except ValueError as error:
        raise HuggingFaceError(f"{path} is not JSON ({error}): copy it again") from error


def read_config(folder: str | Path) -> ModelConfig:
    """Model configuration from the ``config.json`` of a folder or URI. Raises HuggingFaceError if it is missing or
    damaged, UnsupportedModel if the model is not supported, ValueError as ``check_config``."""
    raw, path = raw_config(folder), f"{folder}/config.json"
    try:
        config = config_of(raw, path)
    except KeyError as error:
        raise HuggingFaceError(f"{path} lacks {error}: it is not the config of a model") from error
    except HuggingFaceError:
        raise
    except (TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise HuggingFaceError(f"{path}: {error}: it is not the config of a model") from error
    check_config(config)
    return config


def config_files(config: ModelConfig, tokenizer: Tokenizer | None, dtype: str) -> dict[str, str]:
    """Texts of ``generation_config.json`` and ``config.json`` by name; generation stops at all ``stop_ids``.
    dtype: torch's name of the weights' dtype, "float32" or "bfloat16"."""
    ids: dict[str, Any] = {}
    if tokenizer is not None:
        stops = sorted(tokenizer.stop_ids, key=lambda i: (i != tokenizer.eos_id, i))
        named = {"bos_token_id": tokenizer.bos_id, "eos_token_id": stops or None, "pad_token_id": tokenizer.pad_id}
        ids = {name: value for name, value in named.items() if value is not None}
    raw = {**fields_of(config), "torch_dtype": dtype, "dtype": dtype, **ids}
    sampling = (json_file(tokenizer.files, GENERATION) if tokenizer else {}) or {"do_sample": False}
    return {
        "generation_config.json": json.dumps({**sampling, **ids}, indent=2) + "\n",
        "config.json": json.dumps(raw, indent=2) + "\n",
    }


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, str]:
    """Texts of the tokenizer's files by name, with a ``tokenizer_config.json`` if the vocabulary is this project's."""
    if tokenizer.files and not tokenizer.is_ours:
        return tokenizer.to_files()
    own = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS, "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    if not tokenizer.files:  # config files come with their own template
        own["chat_template"] = WITH_BOS
    return {CONFIG: json.dumps(own, indent=2) + "\n", **tokenizer.to_files()}
