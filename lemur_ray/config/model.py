"""The shape of a decoder-only model as a frozen value. Knows nothing of jax, files or training."""

import math
from dataclasses import dataclass
from typing import Literal

from lemur_ray.config.ranges import COUNT, FROM_ZERO, check_ranges


@dataclass(frozen=True)
class RopeScaling:
    """Scaling of the rotary frequencies for contexts longer than in pretraining, by the rule ``kind`` (none, linear,
    llama3, yarn) and its parameters."""

    kind: Literal["none", "linear", "llama3", "yarn"] = "none"
    """linear: every frequency is divided by factor. llama3, yarn: only those whose wave is long, by different rules."""
    factor: float = 1.0
    """Factor by which the context becomes longer."""
    low_freq_factor: float = 1.0
    """llama3: waves longer than original_max_seq_len / this, in tokens, are stretched by the whole factor."""
    high_freq_factor: float = 4.0
    """llama3: waves shorter than original_max_seq_len / this, in tokens, stay as they are; those between blend."""
    original_max_seq_len: int = 8192
    """llama3, yarn: longest context of pretraining, in tokens."""
    beta_fast: float = 32.0
    """yarn: frequencies that turn more often than this in the pretraining context stay as they are."""
    beta_slow: float = 1.0
    """yarn: frequencies that turn less often than this are divided by the whole factor; those between blend."""
    attention_factor: float = 0.0
    """yarn: factor on cosines and sines; 0: 0.1 ln(factor) + 1."""

    def __post_init__(self) -> None:
        check_ranges(self, factor=COUNT, low_freq_factor=(1e-9, math.inf), original_max_seq_len=COUNT)
        check_ranges(self, beta_slow=(1e-9, math.inf), attention_factor=FROM_ZERO)
        if self.kind == "none" and self.factor != 1.0:
            raise ValueError(f"factor is {self.factor} but kind none: expected another kind, or no factor")
        if not self.low_freq_factor < self.high_freq_factor < math.inf:
            raise ValueError(
                f"high_freq_factor is {self.high_freq_factor}: expected more than low_freq_factor, which is "
                f"{self.low_freq_factor}"
            )
        if not self.beta_slow < self.beta_fast < math.inf:
            raise ValueError(f"beta_fast is {self.beta_fast}: expected more than beta_slow, which is {self.beta_slow}")

    @property
    def gain(self) -> float:
        """Factor on cosines and sines of the rotary embedding."""
        return (self.attention_factor or 0.1 * math.log(self.factor) + 1) if self.kind == "yarn" else 1.0


Family = Literal["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text"]


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a model: pre-norm RMSNorm, RoPE, grouped-query attention, gated feed-forward; family options."""

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
    """Queries and keys go through RMSNorm over each head before the rotary embedding (Qwen3, Gemma 3)."""
    window: int = 0
    """Most recent tokens that a layer with a window attends to (Mistral 7B v0.1, Gemma); 0: no layer has one."""
    global_every: int = 0
    """With a window, every so many layers the last one attends to all tokens (Gemma); 0: all have the window."""
    local_rope_theta: float = 0.0
    """Base of the rotary frequencies in layers with a window, which are never scaled (Gemma 3); 0: as in the others."""
    activation: Literal["silu", "gelu_tanh"] = "silu"
    """Activation of the gate in the feed-forward layer."""
    norm_offset: bool = False
    """Norms multiply by 1 + weight (Gemma)."""
    post_norms: bool = False
    """Outputs of attention and feed-forward layer go through a norm too (Gemma)."""
    embed_scale: bool = False
    """Embeddings are multiplied by the square root of dim (Gemma)."""
    query_scalar: int = 0
    """Attention scores are divided by the square root of this; 0: of head_dim."""
    attention_cap: float = 0.0
    """Soft limit of attention scores: cap x tanh(score / cap) (Gemma 2); 0: none."""
    logit_cap: float = 0.0
    """Soft limit of the logits (Gemma 2); 0: none."""

    def __post_init__(self) -> None:
        counts = ("vocab_size", "num_layers", "dim", "ffn_dim", "num_heads", "num_kv_heads", "head_dim", "max_seq_len")
        check_ranges(self, **dict.fromkeys(counts, COUNT), rope_theta=COUNT, norm_eps=FROM_ZERO)
        optional = ("window", "global_every", "local_rope_theta", "query_scalar", "attention_cap", "logit_cap")
        check_ranges(self, **dict.fromkeys(optional, FROM_ZERO))

    @property
    def period(self) -> int:
        """Number of layers after which windows repeat."""
        return (self.window and self.global_every) or 1

    def window_of(self, layer: int) -> int:
        """Window of a layer, counted from 0, in tokens; 0: it attends to all tokens."""
        return 0 if self.global_every and (layer + 1) % self.global_every == 0 else self.window

    @property
    def query_gain(self) -> float:
        """Factor on queries; as attention divides scores by sqrt(head_dim), it makes that sqrt(query_scalar)."""
        return math.sqrt(self.head_dim / self.query_scalar) if self.query_scalar else 1.0

    @property
    def num_params(self) -> int:
        """Parameters of the whole model, norms included."""
        attention = self.dim * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        biases = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim * self.qkv_bias
        norms = (4 if self.post_norms else 2) * self.dim + 2 * self.head_dim * self.qk_norm
        block = attention + 3 * self.dim * self.ffn_dim + norms + biases
        embeddings = self.vocab_size * self.dim * (1 if self.tie_embeddings else 2)
        return self.num_layers * block + embeddings + self.dim
