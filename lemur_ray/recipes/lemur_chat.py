"""Shared hyper-parameters of the tuning recipes, from sections 2.2 and A.2.2 of the Lemur paper.

Stated there: 2 epochs, Adam, learning rate 2e-5, batches of 128 examples. Not stated and chosen here: cosine to 0 after
3 % warm-up, clip 1.0 (as in pretraining), no weight decay, betas and eps of the Transformers library that the paper
used, rows of 2,048 tokens (the released script defaults to 512)."""

from lemur_ray.config import DataConfig, OptimizerConfig, TrainConfig, TuningConfig

TABLE_1_ROWS = 367_817
"""Sum of the instances in Table 1."""
VOCABULARY = 32_128
"""Llama 2's 32,000 tokens and five specials of the chat format, padded to a multiple of 128."""

OPTIMIZER = OptimizerConfig(
    name="adamw", peak_lr=2e-5, warmup_steps=173, final_lr_fraction=0.0, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.0,
    clip_norm=1.0,
)  # fmt: skip
DATA = DataConfig(seq_len=2048)
TUNING = TuningConfig(epochs=2, batch_examples=128, warmup_fraction=0.03)
TRAINING = TrainConfig(
    steps=-(-TUNING.epochs * TABLE_1_ROWS // TUNING.batch_examples),
    rows_per_step=48, compute_dtype="bfloat16", remat="full",
    spike_sigmas=0.0,  # examples repeat, so only non-finite updates are skipped
    checkpoint_every_steps=250, keep_checkpoints=2,
)  # fmt: skip
"""Steps and rows are estimates for Table 1; the actual table decides them at run time."""
