"""The update rule and its schedule: AdamW, or Muon for the matrices inside the blocks with AdamW for the rest.

A rule returns a *direction*; the step subtracts learning rate x direction, so the schedule is a function of the step
number alone and holds no state. Knows nothing of losses, batches or meshes."""

from typing import Any, assert_never

import jax
import jax.numpy as jnp
import optax

from lemur_ray.config import ModelConfig, OptimizerConfig
from lemur_ray.config.optimizer import AdamW, Muon
from lemur_ray.model import llama
from lemur_ray.model.llama import Params
from lemur_ray.train.muon import scale_by_muon


def learning_rate(config: OptimizerConfig, steps: int, update: Any, xp: Any = jnp) -> Any:
    """Learning rate of update number ``update`` (the first is 1) of a run of ``steps`` updates. Linear from peak /
    warmup at update 1 to the peak at update ``warmup_steps``. Then, by ``schedule``, half a cosine down to
    ``final_lr_fraction`` of the peak at the last update (paper A.1.3); the peak, falling in the last ``decay_fraction``
    of all updates (wsd; Haegele et al. 2024, arXiv 2405.18392); or the peak. xp: numpy or jax.numpy."""
    warmup = max(1, min(config.warmup_steps, steps))
    floor, start = config.final_lr_fraction, warmup
    if config.schedule != "cosine":
        start = max(warmup, steps - round(config.decay_fraction * steps)) if config.schedule == "wsd" else steps
    progress = xp.clip((update - start) / max(1, steps - start), 0.0, 1.0)
    if config.schedule == "cosine":
        decayed = floor + (1.0 - floor) * 0.5 * (1.0 + xp.cos(xp.pi * progress))
    elif config.schedule == "constant":
        decayed = 1.0
    else:
        decayed = 1.0 - (1.0 - floor) * (xp.sqrt(progress) if config.decay_shape == "1-sqrt" else progress)
    return config.peak_lr * xp.where(update < warmup, update / warmup, decayed)


def is_matrix(config: ModelConfig) -> Params:
    """The parameter tree with a bool for each leaf: True for matrices (stacked over layers or not), to which weight
    decay applies."""
    return jax.tree.map(llama.is_matrix, llama.logical_axes(config), is_leaf=lambda x: isinstance(x, tuple))


def _scale_by_shape(factor: float) -> optax.GradientTransformation:
    """Multiply directions of matrices (.., inputs, outputs) by factor x sqrt(max(1, outputs / inputs)), so that each
    output changes as much as with a square matrix."""

    def scale(x: jax.Array) -> jax.Array:
        return x * (factor * max(1.0, x.shape[-1] / x.shape[-2]) ** 0.5)

    return optax.stateless(lambda updates, _: jax.tree.map(scale, updates))


def direction(
    config: OptimizerConfig, model: ModelConfig, operand_dtype: Any = jnp.float32, *, adapters: bool = False
) -> optax.GradientTransformation:
    """The update rule, from gradients and parameters to a direction of their shape, weight decay included.
    operand_dtype: type that operands of muon's matrix products are rounded to. adapters: the trained tree is that of
    ``model.lora``, in which every leaf is a matrix; raises ValueError for a rule that cannot train it."""
    rule = config.rule
    if adapters and not rule.trains_adapters:
        raise ValueError(f"optimizer {config.name} with lora.rank above 0: adapters learn with adamw")
    match rule:
        case AdamW():
            return _adamw(rule, mask=None if adapters else is_matrix(model))
        case Muon():
            return _muon(rule, model, operand_dtype)
        case _:
            assert_never(rule)


def _adam(rule: AdamW) -> optax.GradientTransformation:
    return optax.scale_by_adam(b1=rule.b1, b2=rule.b2, eps=rule.eps)


def _adamw(rule: AdamW, mask: Params | None) -> optax.GradientTransformation:
    """Adam with weight decay on the leaves where ``mask`` is True; None: on all of them."""
    return optax.chain(_adam(rule), optax.add_decayed_weights(rule.weight_decay, mask=mask))


def _muon(rule: Muon, model: ModelConfig, operand_dtype: Any) -> optax.GradientTransformation:
    """Muon (``muon.py``) for the stacked matrices of the blocks, AdamW for other matrices, Adam for norms and biases.
    Directions of muon are scaled by ``lr_scale`` and the shape factor; the decay of every matrix is lr x
    weight_decay."""
    muon = optax.chain(
        scale_by_muon(rule.momentum, operand_dtype),
        _scale_by_shape(rule.lr_scale),
        optax.add_decayed_weights(rule.elsewhere.weight_decay),
    )
    matrices = is_matrix(model)
    labels = {
        **{name: "adamw" if matrices[name] else "plain" for name in matrices if name != "layers"},
        "layers": {name: "muon" if matrix else "plain" for name, matrix in matrices["layers"].items()},
    }
    rules = {"muon": muon, "adamw": _adamw(rule.elsewhere, mask=None), "plain": _adam(rule.elsewhere)}
    return optax.partition(rules, labels)
