"""The update rule and its schedule: AdamW, or Muon for the matrices inside the blocks with AdamW for the rest.

A rule returns a *direction*; the step subtracts learning rate x direction, so the schedule is a function of the step
number alone and holds no state. Knows nothing of losses, batches or meshes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from lemur_ray.config import ModelConfig, OptimizerConfig
from lemur_ray.model.llama import Params, logical_axes
from lemur_ray.train.muon import scale_by_muon


def learning_rate(config: OptimizerConfig, steps: int, update: Any, xp: Any = jnp) -> Any:
    """Learning rate of update number ``update`` (the first is 1) of a run of ``steps`` updates.

    Linear from peak / warmup at update 1 to the peak at update ``warmup_steps``, then half a cosine down to
    ``final_lr_fraction`` of the peak at the last update (paper A.1.3). xp: numpy for float64, jax.numpy under jit.
    """
    warmup = max(1, min(config.warmup_steps, steps))
    progress = xp.clip((update - warmup) / max(1, steps - warmup), 0.0, 1.0)
    floor = config.final_lr_fraction
    decayed = floor + (1.0 - floor) * 0.5 * (1.0 + xp.cos(xp.pi * progress))
    return config.peak_lr * xp.where(update < warmup, update / warmup, decayed)


def is_matrix(config: ModelConfig) -> Params:
    """True for every leaf that is a (stack of) matrices: these are decayed; norms are not."""
    return jax.tree.map(lambda axes: "norm" not in axes, logical_axes(config), is_leaf=lambda x: isinstance(x, tuple))


def _scale_by_shape(factor: float) -> optax.GradientTransformation:
    """Directions of matrices times factor x sqrt(max(1, outputs / inputs)): as loud as a square one per output."""

    def scale(x: jax.Array) -> jax.Array:
        return x * (factor * max(1.0, x.shape[-1] / x.shape[-2]) ** 0.5)

    return optax.stateless(lambda updates, _: jax.tree.map(scale, updates))


def direction(
    config: OptimizerConfig, model: ModelConfig, operand_dtype: Any = jnp.float32, *, adapters: bool = False
) -> optax.GradientTransformation:
    """The rule: gradients and parameters to a direction of the parameters' shape, weight decay included.

    adapters: what learns is the tree of ``model.lora``, all of it matrices; by adamw alone.

    muon: orthogonalised momentum of the stacked matrices of the blocks (``muon.py``, products in ``operand_dtype``),
    times ``muon_lr_scale`` and the shape factor; decay is not scaled, so it is lr x weight_decay for every matrix of
    either rule.
    """
    matrices = is_matrix(model)
    if adapters and config.name != "adamw":
        raise ValueError(f"optimizer {config.name} with lora.rank above 0: adapters learn with adamw")
    adamw = optax.chain(
        optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.eps),
        optax.add_decayed_weights(config.weight_decay, mask=None if adapters or config.name == "muon" else matrices),
    )
    if config.name == "adamw":
        return adamw
    muon = optax.chain(
        scale_by_muon(config.muon_momentum, operand_dtype),
        _scale_by_shape(config.muon_lr_scale),
        optax.add_decayed_weights(config.weight_decay),
    )
    plain = optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.eps)
    labels = {
        **{name: "adamw" if matrices[name] else "plain" for name in matrices if name != "layers"},
        "layers": {name: "muon" if matrix else "plain" for name, matrix in matrices["layers"].items()},
    }
    return optax.partition({"muon": muon, "adamw": adamw, "plain": plain}, labels)
