"""Rematerialisation policies: the named values of a block that are saved for the backward pass.

A policy is a name (``none``, ``full``, ``save_dots``, ``save_dots_except_mlp_in``, ``offload``) or a list of values,
``save:VALUE,..[+offload:VALUE,..]``; offloaded values are saved in host memory. Weights gathered for a product are
never saved."""

from collections.abc import Callable
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

from lemur_ray.config import parse_remat

GATHERED = "gathered"
"""Name that policies use for weights gathered from all devices for one product."""


def named(x: jax.Array, name: str) -> jax.Array:
    """``x``, tagged with a name for rematerialisation policies: one of ``config.REMAT_VALUES`` or GATHERED."""
    return checkpoint_name(x, name)


def _all_but_gathered(primitive: Any, *_: Any, **parameters: Any) -> bool:
    """Policy that saves all values except weights tagged GATHERED and outputs of sharding constraints."""
    if primitive.name == "name":
        return bool(parameters["name"] != GATHERED)
    return bool(primitive.name != "sharding_constraint")


def rematerialised(block: Callable[..., Any], policy: str) -> Callable[..., Any]:
    """``block`` whose backward pass recomputes what a policy does not save. policy: none, full, save_dots or another
    value of ``TrainConfig.remat``; "none" still gathers weights again. Raises ValueError for an unknown one."""
    if policy == "none":
        return jax.checkpoint(block, policy=_all_but_gathered)
    save, offload = parse_remat(policy)
    if offload:
        keep = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=save, names_which_can_be_offloaded=offload, offload_src="device",
            offload_dst="pinned_host",
        )  # fmt: skip
        return jax.checkpoint(block, policy=keep)
    return jax.checkpoint(block, policy=jax.checkpoint_policies.save_only_these_names(*save))
