"""Rotary position embedding in the rotate-half order of the Hugging Face weights.

Angles are float32 whatever the model computes in. Knows nothing of attention or of where positions come from.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def rope_table(positions: jax.Array, head_dim: int, theta: float) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines of the rotation angles.

    positions: any shape, integer; the place of a token inside its own document.
    Returns two float32 arrays of shape (*positions.shape, head_dim // 2).
    """
    frequency = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    angle = positions[..., None].astype(jnp.float32) * frequency
    return jnp.cos(angle), jnp.sin(angle)


def apply_rope(x: jax.Array, table: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Rotate pairs (i, i + head_dim / 2) of every head.

    x: (..., heads, head_dim); table: two arrays (..., head_dim // 2) without the axis of heads. Keeps the dtype of x.
    """
    cos, sin = (t[..., None, :] for t in table)
    left, right = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1).astype(x.dtype)
