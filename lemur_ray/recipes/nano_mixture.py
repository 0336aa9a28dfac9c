"""nano-mixture: one trial of the mixture study, after the paper's appendix A.1.2 at a size for a laptop.

The recipe nano with half as many steps, so that no ratio of code to text repeats a row of the embedded corpus, and
evaluated on 64 held-out rows per kind. The study sets ratio and seed.

    python jobs/mixture_study.py            # six ratios, a few minutes on 2 CPU cores once the corpus is there"""

import dataclasses

from lemur_ray.recipes import nano

RECIPE = dataclasses.replace(
    nano.RECIPE,
    name="nano-mixture",
    source="ours; the ratios of a study as in the paper's A.1.2, which gives no numbers",
    train=dataclasses.replace(nano.RECIPE.train, steps=200, checkpoint_every_steps=50, eval_rows=64),
)
