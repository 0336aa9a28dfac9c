"""The Llama 2 family: shapes of the four models and options shared by their recipes.

From Touvron et al. 2023, "Llama 2" (arXiv 2307.09288). Shapes: appendix A.2.1, and the config.json files of the
published weights. Schedule: section 2.2. Learning rate, context, batch and tokens: table 1."""

from lemur_ray.config import DataConfig, ModelConfig, OptimizerConfig, SourceConfig, TrainConfig

LLAMA2_TOKENS = 2_000_000_000_000
"""Pretraining tokens (table 1)."""
TOKENS_PER_STEP = 1024 * 4096
"""Global batch of 4M tokens: 1,024 rows of 4,096."""
LLAMA2_STEPS = -(-LLAMA2_TOKENS // TOKENS_PER_STEP)
"""476,838 steps."""

LLAMA2_7B = ModelConfig(
    vocab_size=32_000, num_layers=32, dim=4096, ffn_dim=11008, num_heads=32, num_kv_heads=32, head_dim=128,
    max_seq_len=4096,
)  # fmt: skip
LLAMA2_13B = ModelConfig(
    vocab_size=32_000, num_layers=40, dim=5120, ffn_dim=13824, num_heads=40, num_kv_heads=40, head_dim=128,
    max_seq_len=4096,
)  # fmt: skip
LLAMA2_34B = ModelConfig(
    vocab_size=32_000, num_layers=48, dim=8192, ffn_dim=22016, num_heads=64, num_kv_heads=8, head_dim=128,
    max_seq_len=16_384, rope_theta=1e6,
)  # fmt: skip
LLAMA2_70B = ModelConfig(
    vocab_size=32_000, num_layers=80, dim=8192, ffn_dim=28672, num_heads=64, num_kv_heads=8, head_dim=128,
    max_seq_len=4096,
)  # fmt: skip


def llama2_optimizer(peak_lr: float) -> OptimizerConfig:
    """Optimizer options, AdamW as in section 2.2: 2,000 warm-up steps, cosine to 10 % of the peak."""
    return OptimizerConfig(
        name="adamw", peak_lr=peak_lr, warmup_steps=2000, final_lr_fraction=0.1, b1=0.9, b2=0.95, eps=1e-5,
        weight_decay=0.1, clip_norm=1.0,
    )  # fmt: skip


def packed_4096(sources: tuple[SourceConfig, ...] = ()) -> DataConfig:
    """Data options: rows of 4,096 tokens from this mixture of sources; none: every source of the corpus."""
    return DataConfig(sources=sources, seq_len=4096)


def llama2_training(microbatches: int) -> TrainConfig:
    """Training options: batch size and length of table 1; microbatches depend on the pod, not on the paper."""
    return TrainConfig(
        steps=LLAMA2_STEPS, rows_per_step=1024, microbatches=microbatches, compute_dtype="bfloat16", remat="save_dots",
        checkpoint_every_steps=500, keep_checkpoints=3,
    )  # fmt: skip
