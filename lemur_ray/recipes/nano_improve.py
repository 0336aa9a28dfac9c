"""nano-improve: updates of a chat model on what it played; the model's shape is that of the run it starts from.

Four rounds of 64 updates of one row. Muon at a quarter of nano-chat's rate, falling to a tenth: imitation bears that.
A gain from it has not been measured (docs/guides/improve.md).

    python jobs/improve.py --init-from nano-chat"""

from lemur_ray.config import OptimizerConfig, Recipe, TrainConfig
from lemur_ray.recipes import nano

RECIPE = Recipe(
    name="nano-improve",
    source="ours",
    model=nano.RECIPE.model,
    optimizer=OptimizerConfig(
        name="muon", peak_lr=5e-4, warmup_steps=10, final_lr_fraction=0.1, b2=0.98, eps=1e-8, clip_norm=0.0
    ),
    data=nano.RECIPE.data,
    train=TrainConfig(steps=256, rows_per_step=1, spike_sigmas=0.0),
)
