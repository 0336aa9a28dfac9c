"""The recipe, a whole run as one frozen value; its identity (the fields that decide its numbers) and their hash.

Knows nothing of jax, Ray or files; recipes live in ``lemur_ray/recipes``."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from lemur_ray.config.data import DataConfig
from lemur_ray.config.mesh import MeshConfig
from lemur_ray.config.model import ModelConfig, RopeScaling
from lemur_ray.config.optimizer import OptimizerConfig
from lemur_ray.config.training import TrainConfig
from lemur_ray.config.tuning import LoraConfig, TuningConfig
from lemur_ray.config.watching import WatchConfig


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the numbers of a run. Its hash is in every checkpoint and every report."""

    name: str = "nano"
    """Name of the recipe (what the run is called in checkpoints and reports)."""
    source: str = ""
    """Where the recipe's numbers come from (section of the paper)."""
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    mesh: MeshConfig = MeshConfig()
    watch: WatchConfig = WatchConfig()
    tuning: TuningConfig = TuningConfig()
    lora: LoraConfig = LoraConfig()

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one global batch, padding included."""
        return self.train.rows_per_step * self.data.seq_len

    @property
    def hash(self) -> str:
        """16 hex digits over every field that decides the numbers; the mesh, watching and checkpoint timing do not."""
        return hashlib.sha256(json.dumps(identity(self), sort_keys=True).encode()).hexdigest()[:16]


_NOT_IDENTITY = (
    "microbatches", "remat", "attention_block",  # change roundings only, as the mesh does
    "checkpoint_every_steps", "checkpoint_every_s", "keep_checkpoints", "keep_every_steps", "preemption_every_steps",
    "log_every_steps", "max_failures", "max_skips_in_a_row", "eval_every_steps", "eval_rows",
)  # fmt: skip

_NEWER = (
    "beta_fast", "beta_slow", "attention_factor", "family", "qkv_bias", "qk_norm", "window", "global_every",
    "local_rope_theta", "activation", "norm_offset", "post_norms", "embed_scale", "query_scalar", "attention_cap",
    "logit_cap", "schedule", "decay_fraction", "decay_shape", "max_documents", "attention_block",
)  # fmt: skip
"""Fields newer than the first hashes; they are in the identity unless default."""


def drop_newer(value: dict[str, Any]) -> None:
    """Remove newer fields at their defaults from a recipe in JSON form, in place, so that older hashes stay valid."""
    default = dataclasses.asdict(Recipe())
    for part, plain in (
        (value["model"], default["model"]),
        (value["model"]["rope_scaling"], default["model"]["rope_scaling"]),
        (value["optimizer"], default["optimizer"]),
        (value["data"], default["data"]),
        (value["train"], default["train"]),
    ):
        for name in _NEWER:
            if name in part and part[name] == plain[name]:
                del part[name]


def identity(recipe: Recipe) -> dict[str, Any]:
    """The fields of a recipe that decide its numbers, as nested JSON values."""
    value = json.loads(json.dumps(dataclasses.asdict(recipe)))
    del value["mesh"], value["source"], value["watch"]
    drop_newer(value)
    value["data"].pop("max_documents", None)  # changes no number
    if recipe.model.rope_scaling == RopeScaling():
        del value["model"]["rope_scaling"]
    for name in _NOT_IDENTITY:
        value["train"].pop(name, None)
    if not recipe.tuning.epochs:  # then the other fields have no effect
        del value["tuning"]
    if not recipe.lora.rank:
        del value["lora"]
    return value


class Difference(NamedTuple):
    """A field with different values in two JSON objects; ``name`` is dotted. Its text is ``name: left != right``."""

    name: str
    left: Any
    right: Any

    def __str__(self) -> str:
        return f"{self.name}: {self.left!r} != {self.right!r}"


def differing_fields(a: dict[str, Any], b: dict[str, Any], prefix: str = "") -> list[Difference]:
    """Fields in which two nested JSON objects differ, by name; a key that one lacks counts as null. prefix: put before
    the names."""
    out: list[Difference] = []
    for key in sorted(a.keys() | b.keys()):
        left, right = a.get(key), b.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            out += differing_fields(left, right, f"{prefix}{key}.")
        elif left != right:
            out.append(Difference(prefix + key, left, right))
    return out
