"""Logits of every token of a batch, for tests: training and serving never hold them all."""

from typing import Any

import jax
import jax.numpy as jnp

from lemur_ray.config import ModelConfig
from lemur_ray.model.attention.oracle import capped
from lemur_ray.model.llama import Forward, Params, hidden_states, output_head
from lemur_ray.model.matmul import matmul


def logits(params: Params, config: ModelConfig, *given: Any, compute_dtype: Any = jnp.float32) -> jax.Array:
    """(B, L, V) float32. given: tokens, segment ids and positions, each (B, L)."""
    x = hidden_states(params, config, *given, Forward(compute_dtype))
    return capped(matmul(x, output_head(params)).astype(jnp.float32), config.logit_cap)
