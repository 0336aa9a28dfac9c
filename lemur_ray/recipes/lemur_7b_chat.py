"""lemur-7b-chat: the same tuning as lemur-70b-chat on a 7B model of Llama 2's shape; ours, the paper tunes 70B only.

python jobs/instruct.py lemur-7b-chat --init-from LLAMA2_7B --oasst1 FILE --openorca FILE --sharegpt FILE --evol FILE"""

from dataclasses import replace

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.recipes.lemur_chat import DATA, OPTIMIZER, TRAINING, TUNING, VOCABULARY
from lemur_ray.recipes.llama2 import LLAMA2_7B

RECIPE = Recipe(
    name="lemur-7b-chat",
    source="hyper-parameters of arXiv 2310.06830, sections 2.2 and A.2.2",
    model=replace(LLAMA2_7B, vocab_size=VOCABULARY),
    optimizer=OPTIMIZER,
    data=DATA,
    train=TRAINING,
    mesh=MeshConfig(num_workers=4, use_tpu=True, topology="2x2x4", accelerator_type="TPU-V4", fsdp=16, tp=1),
    tuning=TUNING,
)
