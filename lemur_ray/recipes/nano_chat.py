"""nano-chat: nano tuned on conversations; the policy of the demo's agents.

Starts from runs/nano. Trained on games of an expert who states what it looks for (docs/decisions/004) and on a few
hundred questions about code: many small steps and muon, as in nano. Loss on the assistant's tokens, as in the paper.

    python jobs/instruct.py            # about 11 minutes on 2 otherwise idle CPU cores"""

from lemur_ray.config import Recipe, TrainConfig
from lemur_ray.recipes import nano

RECIPE = Recipe(
    name="nano-chat",
    source="ours; loss mask after the paper's A.2",
    model=nano.RECIPE.model,
    optimizer=nano.RECIPE.optimizer,
    data=nano.RECIPE.data,
    train=TrainConfig(
        steps=3600, rows_per_step=1, spike_sigmas=0.0, checkpoint_every_steps=1000, checkpoint_every_s=120.0
    ),
)
