"""llama2-7b: the 7B base model of Llama 2.

6,738,415,616 parameters. Shape, schedule and batch are those of ``recipes.llama2``.

    python jobs/pretrain.py llama2-7b --corpus DIR --out gs://BUCKET/llama2-7b"""

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.recipes.llama2 import LLAMA2_7B, llama2_optimizer, llama2_training, packed_4096

RECIPE = Recipe(
    name="llama2-7b",
    source="arXiv 2307.09288, section 2.2 and table 1",
    model=LLAMA2_7B,
    optimizer=llama2_optimizer(peak_lr=3e-4),
    data=packed_4096(),
    train=llama2_training(microbatches=16),
    mesh=MeshConfig(num_workers=16, use_tpu=True, topology="4x4x4", accelerator_type="TPU-V4", fsdp=64, tp=1),
)
