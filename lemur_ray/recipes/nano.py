"""nano: the smallest model that learns; the default recipe and the base of the demo.

1,377,408 parameters at a vocabulary of 2,048 (a run takes the vocabulary of its corpus' tokenizer). Many small steps
(1,024 tokens each) and muon on the matrices are what moves a model of this size in minutes of CPU time.

    python jobs/pretrain.py            # about 1.5 minutes on 2 CPU cores once the corpus is there"""

from lemur_ray.config import DataConfig, ModelConfig, OptimizerConfig, Recipe, TrainConfig

RECIPE = Recipe(
    name="nano",
    source="ours; mixture code : text = 10 : 1 after the paper's A.1.2",
    model=ModelConfig(
        vocab_size=2048, num_layers=4, dim=128, ffn_dim=384, num_heads=4, num_kv_heads=4, head_dim=32, max_seq_len=1024
    ),
    optimizer=OptimizerConfig(
        name="muon", peak_lr=2e-3, warmup_steps=30, final_lr_fraction=0.05, b2=0.98, eps=1e-8, clip_norm=0.0
    ),
    data=DataConfig(code_to_text=10.0, seq_len=1024),
    train=TrainConfig(
        steps=400, rows_per_step=1, checkpoint_every_steps=200, checkpoint_every_s=60.0, log_every_steps=10
    ),
)
