"""Tiny random models of every supported family, made by transformers and saved as model folders."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

VOCAB = 96
torch.set_num_threads(1)  # tiny products: threads only wait for each other
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.2, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": None, "attn_implementation": "eager",
}  # fmt: skip
_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5e2,
    "original_max_position_embeddings": 32,
}  # fmt: skip
_YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 32}
_GEMMA = {
    "head_dim": 16, "sliding_window": 24, "num_hidden_layers": 3, "query_pre_attn_scalar": 24,
    "final_logit_softcapping": 3.0,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama 3": ("Llama", {"rope_parameters": _LLAMA3, "head_dim": 16}),
    "llama 3, tied": ("Llama", {"rope_parameters": _LLAMA3, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("Qwen2", {}),
    "qwen2, tied": ("Qwen2", {"tie_word_embeddings": True}),
    "mistral, windows": ("Mistral", {"sliding_window": 24, "tie_word_embeddings": True}),
    "qwen2, yarn": ("Qwen2", {"rope_parameters": _YARN}),
    "gemma 2": ("Gemma2", {**_GEMMA, "attn_logit_softcapping": 2.0}),
    "gemma 3": (
        "Gemma3Text",
        {
            **_GEMMA,
            "sliding_window_pattern": 2,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
            },
        },
    ),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3, tied": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
}
"""Class name without its ending -> fields of the config besides ``_SHAPE``."""


def hf_config(name: str) -> Any:
    """The config of ``FAMILIES[name]`` as transformers has it."""
    kind, fields = FAMILIES[name]
    return getattr(transformers, f"{kind}Config")(**_SHAPE | fields)


@functools.cache
def torch_model(name: str) -> Any:
    """The model of ``FAMILIES[name]`` in float32, with random norms and biases too."""
    torch.manual_seed(0)
    kind = FAMILIES[name][0].removesuffix("Text")
    model = getattr(transformers, f"{kind}ForCausalLM")(hf_config(name)).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.3)
    return model


def saved(name: str, folder: Path, dtype: Any = torch.float32) -> Path:
    """The model as a Hugging Face folder, with weights rounded to ``dtype``."""
    copy.deepcopy(torch_model(name)).to(dtype).save_pretrained(str(folder))
    return folder


def tokens(rows: int, length: int, seed: int = 0) -> np.ndarray:
    """Random token ids (rows, length) int32."""
    return np.random.default_rng(seed).integers(0, VOCAB, (rows, length)).astype(np.int32)
