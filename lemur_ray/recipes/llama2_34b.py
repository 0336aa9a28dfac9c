"""llama2-34b: the 34B shape of Llama 2, released as Code Llama 34B.

33,743,970,304 parameters. Schedule and batch: ``recipes.llama2``. Llama 2 34B was never released; the rotary base of
1e6 and the context of 16,384 are Code Llama's (arXiv 2308.12950, section 2.4), so that its weights load.

    python jobs/pretrain.py llama2-34b --corpus DIR --out gs://BUCKET/llama2-34b"""

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.recipes.llama2 import LLAMA2_34B, llama2_optimizer, llama2_training, packed_4096

RECIPE = Recipe(
    name="llama2-34b",
    source="arXiv 2307.09288, section 2.2 and table 1",
    model=LLAMA2_34B,
    optimizer=llama2_optimizer(peak_lr=1.5e-4),
    data=packed_4096(),
    train=llama2_training(microbatches=8),
    mesh=MeshConfig(num_workers=64, use_tpu=True, topology="4x8x8", accelerator_type="TPU-V4", fsdp=128, tp=2),
)
