"""Rotary position embedding in the rotate-half order of the Hugging Face weights.

Angles are always float32.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from lemur_ray.config import ModelConfig, RopeScaling


def rope_table(positions: jax.Array, config: ModelConfig) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines of the rotation angles of tokens, each float32 (*positions.shape, head_dim // 2).

    positions: any shape, integer; position of each token inside its document.
    """
    width = config.head_dim
    frequency = config.rope_theta ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angle = positions[..., None].astype(jnp.float32) * _stretched(frequency, config.rope_scaling)
    return jnp.cos(angle), jnp.sin(angle)


def _stretched(frequency: jax.Array, scaling: RopeScaling) -> jax.Array:
    """Frequencies (radians per token) changed for a longer context, by the kind of ``scaling``.

    linear: Chen et al. 2023 (arXiv 2306.15595), position interpolation. llama3: the rule of the Llama 3.1 release
    (``apply_scaling``): high frequencies, which turn often in the pretraining context, are kept, low ones interpolated.
    """
    if scaling.kind == "none":
        return frequency
    if scaling.kind == "linear":
        return frequency / scaling.factor
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    turns = scaling.original_max_seq_len * frequency / (2 * math.pi)
    kept = jnp.clip((turns - low) / (high - low), 0.0, 1.0)
    return kept * frequency + (1 - kept) * frequency / scaling.factor


def apply_rope(x: jax.Array, table: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Rotate the feature pairs (i, i + head_dim / 2) of every head by the angles in ``table``.

    x: (..., heads, head_dim); table: two arrays (..., head_dim // 2) without the axis of heads. Keeps the dtype of x.
    """
    cos, sin = (t[..., None, :] for t in table)
    left, right = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1).astype(x.dtype)
