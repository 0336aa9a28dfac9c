"""lemur-70b-chat: Lemur-70B tuned on 368K conversations, two passes, as in sections 2.2 and A.2.2 of the Lemur paper.

    python jobs/instruct.py lemur-70b-chat --init-from LEMUR_70B --oasst1 FILE --openorca FILE --sharegpt FILE \
        --evol FILE --out gs://BUCKET/lemur-70b-chat

About 5,747 steps of 128 conversations. Expected: table 3 of the paper (average 50.7 of eight benchmarks, Lemur-70B
47.9) and its tables 4 to 7 on agents."""

from dataclasses import replace

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.recipes.lemur_chat import DATA, OPTIMIZER, TRAINING, TUNING, VOCABULARY
from lemur_ray.recipes.llama2 import LLAMA2_70B

RECIPE = Recipe(
    name="lemur-70b-chat",
    source="arXiv 2310.06830, sections 2.2 and A.2.2",
    model=replace(LLAMA2_70B, vocab_size=VOCABULARY),
    optimizer=OPTIMIZER,
    data=DATA,
    train=TRAINING,
    mesh=MeshConfig(num_workers=32, use_tpu=True, topology="4x4x8", accelerator_type="TPU-V4", fsdp=16, tp=8),
    tuning=TUNING,
)
