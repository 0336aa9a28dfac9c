"""Lower bound on the device memory of a run: parameters, gradients and optimizer state, whatever is recomputed.

A run above it cannot fit; ``train/aot`` computes what a step really needs. Knows nothing of jax."""

import math

from lemur_ray.config import Recipe
from lemur_ray.train.pod.chips import CHIPS, GIB
from lemur_ray.train.pod.slices import RunShape, Slice

PARAMETER, GRADIENT = 4, 4
"""Bytes of one float32 parameter and of its gradient."""


def state_bytes(recipe: Recipe) -> int:
    """Lower bound on the bytes of one copy of the training state; for adapters, the bytes of the frozen base alone."""
    parameters = recipe.model.num_params
    if recipe.lora.rank:
        return parameters * (2 if recipe.train.compute_dtype == "bfloat16" else 4)
    return parameters * (PARAMETER + GRADIENT + recipe.optimizer.rule.state_bytes(block_matrix=True))


def bytes_per_device(recipe: Recipe, where: RunShape) -> int:
    """Bytes of ``state_bytes`` on one device: fsdp and tp split a copy, every index of dcn has its own."""
    return state_bytes(recipe) // (where.fsdp * where.tp)


def min_chips(recipe: Recipe, where: Slice) -> int:
    """Minimum number of chips of the slice's generation whose memory holds one copy of the training state."""
    return math.ceil(state_bytes(recipe) / CHIPS[where.generation.name].hbm_bytes)


def gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
