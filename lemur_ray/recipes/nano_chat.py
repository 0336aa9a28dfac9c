"""nano-chat: nano tuned on conversations, loss on the assistant alone; what the demo's agents are played with.

Starts from runs/nano. 0.8 million tokens of expert games and a few hundred questions about code, seen several times:
many small steps and muon, as in nano, because the number of games solved grows with steps before it grows with data.

    python jobs/instruct.py            # about 10 minutes on 2 CPU cores
"""

from lemur_ray.config import OptimizerConfig, Recipe, TrainConfig
from lemur_ray.recipes import nano

RECIPE = Recipe(
    name="nano-chat",
    source="ours; loss mask after the paper's A.2",
    model=nano.RECIPE.model,
    optimizer=OptimizerConfig(
        name="muon", peak_lr=3e-3, warmup_steps=30, final_lr_fraction=0.05, b2=0.98, eps=1e-8, clip_norm=0.0
    ),
    data=nano.RECIPE.data,
    train=TrainConfig(steps=5000, rows_per_step=1, checkpoint_every_steps=1000, checkpoint_every_s=120.0),
)
