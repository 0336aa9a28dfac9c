"""Floating point operations of training, in two named conventions.

``6n``: 6 x parameters per token (2 forward, 4 backward), nothing for attention scores.
``6n_causal``: the same plus 6 x layers x model width x length per token for causal attention, half of the term of
tables that count full attention (12 x L x D x S), and less for layers with a window. Recomputation is never counted."""

from lemur_ray.config import ModelConfig
from lemur_ray.model.llama import num_params

CONVENTIONS = ("6n", "6n_causal")


def flops_per_token(config: ModelConfig, seq_len: int, convention: str = "6n_causal") -> float:
    """Floating point operations to train one token of a row of ``seq_len`` tokens. convention: one of CONVENTIONS;
    raises ValueError for another. Llama-2-70B at 4,096: 4.14e11 (6n), 4.30e11 (6n_causal)."""
    if convention not in CONVENTIONS:
        raise ValueError(f"FLOP convention {convention!r} does not exist: choose one of {', '.join(CONVENTIONS)}")
    total = 6.0 * num_params(config)
    if convention == "6n_causal":
        seen = (_mean_keys(config.window_of(layer), seq_len) for layer in range(config.num_layers))
        total += 12.0 * config.num_heads * config.head_dim * sum(seen)
    return total


def _mean_keys(window: int, seq_len: int) -> float:
    """Keys that a token attends to, on average over a row; window: 0 for all before it."""
    return seq_len / 2 if not 0 < window < seq_len else window * (1 - window / (2 * seq_len))
