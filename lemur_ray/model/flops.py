"""Floating point operations of training, in two named conventions.

``6n``: 6 x parameters per token (2 forward, 4 backward), nothing for attention scores.
``6n_causal``: the same plus 6 x layers x model width x length per token for causal attention, half of the term of
tables that count full attention (12 x L x D x S). Recomputation is never counted.
"""

from __future__ import annotations

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import num_params

CONVENTIONS = ("6n", "6n_causal")


def flops_per_token(config: ModelConfig, seq_len: int, convention: str = "6n_causal") -> float:
    """Floating point operations to train one token. Llama-2-70B at 4,096: 4.14e11 (6n), 4.30e11 (6n_causal)."""
    if convention not in CONVENTIONS:
        raise ValueError(f"FLOP convention {convention!r} does not exist: choose one of {', '.join(CONVENTIONS)}")
    total = 6.0 * num_params(config)
    if convention == "6n_causal":
        total += 6.0 * config.num_layers * config.num_heads * config.head_dim * seq_len
    return total
