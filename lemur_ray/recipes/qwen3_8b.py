"""qwen3-8b: the run of llama3-8b from Qwen3 8B (base).

8,190,735,360 parameters. Shape: arXiv 2505.09388, table 1, and the config.json of the published weights.

    python jobs/pretrain.py qwen3-8b --corpus DIR --init-from QWEN3_8B_CHECKPOINT --out DIR"""

from lemur_ray.config import ModelConfig, Recipe
from lemur_ray.recipes.llama2 import llama2_optimizer
from lemur_ray.recipes.llama3_8b import DATA, HOST, TRAINING

RECIPE = Recipe(
    name="qwen3-8b",
    source="arXiv 2505.09388, table 1; arXiv 2310.06830, sections 2.1, A.1.1, A.1.3",
    model=ModelConfig(
        vocab_size=151_936, num_layers=36, dim=4096, ffn_dim=12_288, num_heads=32, num_kv_heads=8, head_dim=128,
        max_seq_len=32_768, rope_theta=1_000_000.0, norm_eps=1e-6, family="qwen3", qk_norm=True,
    ),
    optimizer=llama2_optimizer(peak_lr=4e-5),
    data=DATA,
    train=TRAINING,
    mesh=HOST,
)  # fmt: skip
