"""A model from one kind of folder to another: any model to Hugging Face format, any model to a run folder.

A run folder made here holds one checkpoint at step 0, parameters and fresh moments, as if training were about to begin.
Knows nothing of Ray.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp

from lemur_ray.config import Recipe, identity
from lemur_ray.model.hf import export
from lemur_ray.model.load import load_model
from lemur_ray.train.checkpoint import Checkpoints
from lemur_ray.train.step import init_state


@dataclasses.dataclass(frozen=True)
class Convert:
    """Convert a model between this project's run folders and the Hugging Face format."""

    model: str
    """Run folder or its name, checkpoint, Hugging Face folder, random:nano or random:nano@RUN."""
    out: str
    """Folder to write; relative paths lie in LEMUR_HOME."""
    to: Literal["hf", "run"] = "hf"
    """hf: safetensors, configs and tokenizer. run: a run folder with one checkpoint at step 0."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights in Hugging Face format."""
    max_file_gb: float = 5.0
    """Size of one weight file at most, in 10^9 bytes."""

    def __post_init__(self) -> None:
        if "://" in self.out:
            raise ValueError(f"out is {self.out}: expected a local or mounted folder; copy it to the bucket afterwards")


def convert(job: Convert, out: Path) -> Path:
    """Write the model into ``out`` and return it. Raises FileExistsError where something else lies there already."""
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty: choose another --out")
    model = load_model(job.model)
    if job.to == "hf":
        export(
            model.params, model.config, model.tokenizer, out,
            dtype=job.dtype, max_file_bytes=int(job.max_file_gb * 10**9),
        )  # fmt: skip
        return out
    out.mkdir(parents=True, exist_ok=True)
    recipe = Recipe(name=model.name, source=f"converted from {job.model}", model=model.config)
    state = init_state(recipe, jax.tree.map(jnp.asarray, model.params))
    plan = {"rows": 0, "recipe": identity(recipe), "hash": recipe.hash}
    with Checkpoints(str(out / "checkpoints"), keep=1) as checkpoints:
        checkpoints.save(0, state, plan)
        checkpoints.wait()
    model.tokenizer.save(out / "tokenizer.json")
    full = {"recipe": dataclasses.asdict(recipe), "hash": recipe.hash, "identity": identity(recipe)}
    (out / "recipe.json").write_text(json.dumps(full, indent=1))
    return out
