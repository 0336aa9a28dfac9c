"""llama2-70b: the 70B base model of Llama 2, where Lemur starts.

68,976,648,192 parameters. Shape, schedule and batch are those of ``recipes.llama2``.

    python jobs/pretrain.py llama2-70b --corpus DIR --out gs://BUCKET/llama2-70b"""

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.recipes.llama2 import LLAMA2_70B, llama2_optimizer, llama2_training, packed_4096

RECIPE = Recipe(
    name="llama2-70b",
    source="arXiv 2307.09288, section 2.2 and table 1",
    model=LLAMA2_70B,
    optimizer=llama2_optimizer(peak_lr=1.5e-4),
    data=packed_4096(),
    train=llama2_training(microbatches=16),
    mesh=MeshConfig(num_workers=64, use_tpu=True, topology="4x8x8", accelerator_type="TPU-V4", fsdp=64, tp=4),
)
