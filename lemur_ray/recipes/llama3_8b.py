"""llama3-8b: Lemur's continued pretraining, code : text = 10 : 1, from Llama 3.1 8B on one host of eight H100.

8,030,261,248 parameters. Shape: arXiv 2407.21783, table 3, and the config.json of the published weights (Llama 3.1).
Optimizer and mixture are those of the Lemur paper (arXiv 2310.06830, sections 2.1, A.1.1 and A.1.3); its 90B tokens
would take such a host months, so the run is of 10B tokens, with batches of 1M; both are ours, as is the length of rows.

    python jobs/pretrain.py llama3-8b --corpus DIR --init-from LLAMA3_8B_CHECKPOINT --out DIR"""

from lemur_ray.config import DataConfig, MeshConfig, ModelConfig, Recipe, RopeScaling, TrainConfig
from lemur_ray.recipes.lemur_mixture import table8_sources
from lemur_ray.recipes.llama2 import llama2_optimizer

ROWS, LENGTH = 128, 8192
"""Rows of a batch and tokens of a row: 1,048,576 tokens a step."""
ADAPTED_TOKENS = 10_000_000_000

DATA = DataConfig(sources=table8_sources(), seq_len=LENGTH)
TRAINING = TrainConfig(
    steps=-(-ADAPTED_TOKENS // (ROWS * LENGTH)),
    rows_per_step=ROWS,
    microbatches=16,
    compute_dtype="bfloat16",
    remat="save_dots",
    checkpoint_every_steps=250,
    keep_checkpoints=3,
)
HOST = MeshConfig(num_workers=8, use_gpu=True, fsdp=8)

RECIPE = Recipe(
    name="llama3-8b",
    source="arXiv 2407.21783, table 3; arXiv 2310.06830, sections 2.1, A.1.1, A.1.3",
    model=ModelConfig(
        vocab_size=128_256, num_layers=32, dim=4096, ffn_dim=14_336, num_heads=32, num_kv_heads=8, head_dim=128,
        max_seq_len=131_072, rope_theta=500_000.0,
        rope_scaling=RopeScaling(
            kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=8192
        ),
    ),
    optimizer=llama2_optimizer(peak_lr=4e-5),
    data=DATA,
    train=TRAINING,
    mesh=HOST,
)  # fmt: skip
