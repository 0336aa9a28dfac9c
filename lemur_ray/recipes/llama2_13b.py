"""llama2-13b: the 13B base model of Llama 2.

13,015,864,320 parameters. Shape, schedule and batch are those of ``recipes.llama2``.

    python jobs/pretrain.py llama2-13b --corpus DIR --out gs://BUCKET/llama2-13b"""

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.recipes.llama2 import LLAMA2_13B, llama2_optimizer, llama2_training, packed_4096

RECIPE = Recipe(
    name="llama2-13b",
    source="arXiv 2307.09288, section 2.2 and table 1",
    model=LLAMA2_13B,
    optimizer=llama2_optimizer(peak_lr=3e-4),
    data=packed_4096(),
    train=llama2_training(microbatches=8),
    mesh=MeshConfig(num_workers=32, use_tpu=True, topology="4x4x8", accelerator_type="TPU-V4", fsdp=128, tp=1),
)
