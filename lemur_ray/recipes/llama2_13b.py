"""llama2-13b: the 13B base model of Llama 2.

13,015,864,320 parameters. Shape and schedule from Touvron et al. 2023, "Llama 2" (arXiv 2307.09288): section 2.2
(AdamW 0.9 / 0.95, eps 1e-5, warm-up 2,000 steps, cosine to 10 %, weight decay 0.1, clip 1.0) and table 1 (learning
rate, context 4,096, global batch of 4M tokens, 2.0T tokens).

    python jobs/pretrain.py llama2-13b --corpus DIR --out gs://BUCKET/llama2-13b
"""

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
