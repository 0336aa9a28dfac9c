"""What the backward pass recomputes and what it keeps, by name: policies over the named values of a block.

A policy is a name (``none``, ``full``, ``save_dots``, ``save_dots_except_mlp_in``, ``offload``) or a list of values,
``save:VALUE,..`` with ``offload:VALUE,..`` after a plus sign for what waits in the host's memory. Weights gathered
for a product are never kept. Knows nothing of what the values are computed from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

from lemur_ray.config import REMAT_VALUES, parse_remat

GATHERED = "gathered"
"""Name of weights gathered for one product."""


def named(x: jax.Array, name: str) -> jax.Array:
    """``x``, under the name by which a policy may keep it: one of ``config.REMAT_VALUES`` or GATHERED."""
    return checkpoint_name(x, name)


def _all_but_gathered(primitive: Any, *_: Any, **parameters: Any) -> bool:
    """Keep everything but gathered weights: what a placement gives, also under its name."""
    if primitive.name == "name":
        return bool(parameters["name"] != GATHERED)
    return bool(primitive.name != "sharding_constraint")


def rematerialised(block: Callable[..., Any], policy: str) -> Callable[..., Any]:
    """The block with its backward pass under the named policy. Raises ValueError for one that does not exist."""
    if policy == "none":
        return jax.checkpoint(block, policy=_all_but_gathered)
    save, offload = parse_remat(policy)
    if offload:
        return jax.checkpoint(
            block,
            policy=jax.checkpoint_policies.save_and_offload_only_these_names(
                names_which_can_be_saved=save,
                names_which_can_be_offloaded=offload,
                offload_src="device",
                offload_dst="pinned_host",
            ),
        )
    return jax.checkpoint(block, policy=jax.checkpoint_policies.save_only_these_names(*save))


__all__ = ["GATHERED", "REMAT_VALUES", "named", "rematerialised"]
