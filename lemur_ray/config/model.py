"""The shape of a decoder-only model as a frozen value. Knows nothing of jax, files or training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from lemur_ray.config.ranges import COUNT, FROM_ZERO, check_ranges


@dataclass(frozen=True)
class RopeScaling:
    """Scaling of the rotary frequencies for contexts longer than in pretraining."""

    kind: Literal["none", "linear", "llama3"] = "none"
    """linear: every frequency is divided by factor. llama3: only those whose wave is long (Llama 3.1, 3.2, 3.3)."""
    factor: float = 1.0
    """Factor by which the context becomes longer."""
    low_freq_factor: float = 1.0
    """llama3: waves longer than original_max_seq_len / this, in tokens, are stretched by the whole factor."""
    high_freq_factor: float = 4.0
    """llama3: waves shorter than original_max_seq_len / this, in tokens, stay as they are; those between blend."""
    original_max_seq_len: int = 8192
    """llama3: longest context of pretraining, in tokens."""

    def __post_init__(self) -> None:
        check_ranges(self, factor=COUNT, low_freq_factor=(1e-9, math.inf), original_max_seq_len=COUNT)
        if self.kind == "none" and self.factor != 1.0:
            raise ValueError(f"factor is {self.factor} but kind none: expected kind linear or llama3, or no factor")
        if not self.low_freq_factor < self.high_freq_factor < math.inf:
            raise ValueError(
                f"high_freq_factor is {self.high_freq_factor}: expected more than low_freq_factor, which is "
                f"{self.low_freq_factor}"
            )


Family = Literal["llama", "mistral", "qwen2", "qwen3"]


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a model: pre-norm RMSNorm, RoPE, grouped-query attention, gated feed-forward; switches for families."""

    vocab_size: int = 2048
    """Rows of the embedding and of the output head, in tokens; at least the tokenizer's vocabulary."""
    num_layers: int = 4
    """Number of transformer blocks."""
    dim: int = 128
    """Width of the residual stream, in features."""
    ffn_dim: int = 384
    """Width of the gated feed-forward layer, in features."""
    num_heads: int = 4
    """Number of query heads."""
    num_kv_heads: int = 4
    """Number of key/value heads; divides num_heads."""
    head_dim: int = 32
    """Width of one head, in features; even."""
    max_seq_len: int = 1024
    """Longest context in tokens."""
    rope_theta: float = 10_000.0
    """Base of the rotary frequencies."""
    rope_scaling: RopeScaling = RopeScaling()
    norm_eps: float = 1e-5
    """Epsilon of RMSNorm, computed in float32."""
    tie_embeddings: bool = False
    """Share the embedding with the output head."""
    family: Family = "llama"
    """model_type under which Hugging Face weights are written; changes nothing that is computed."""
    qkv_bias: bool = False
    """Queries, keys and values have biases (Qwen2)."""
    qk_norm: bool = False
    """Queries and keys go through RMSNorm over each head before the rotary embedding (Qwen3)."""

    def __post_init__(self) -> None:
        counts = ("vocab_size", "num_layers", "dim", "ffn_dim", "num_heads", "num_kv_heads", "head_dim", "max_seq_len")
        check_ranges(self, **dict.fromkeys(counts, COUNT), rope_theta=COUNT, norm_eps=FROM_ZERO)

    @property
    def num_params(self) -> int:
        """Parameters of the whole model, norms included."""
        attention = self.dim * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        biases = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim * self.qkv_bias
        block = attention + 3 * self.dim * self.ffn_dim + 2 * self.dim + biases + 2 * self.head_dim * self.qk_norm
        embeddings = self.vocab_size * self.dim * (1 if self.tie_embeddings else 2)
        return self.num_layers * block + embeddings + self.dim
