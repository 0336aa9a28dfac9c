"""Rotary position embedding in the rotate-half order of the Hugging Face weights, with float32 angles."""

import dataclasses
import math

import jax
import jax.numpy as jnp

from lemur_ray.config import ModelConfig, RopeScaling
from lemur_ray.model.matmul import sum_dtype

Table = tuple[jax.Array, jax.Array]
"""(cosines, sines) of rotation angles, as of ``rope_table``."""


def rope_tables(positions: jax.Array, config: ModelConfig) -> tuple[Table, Table]:
    """(``rope_table`` of layers that attend to all tokens, ``rope_table`` of layers with a window). positions: any
    shape, integer; position of each token inside its document."""
    everywhere = rope_table(positions, config)
    if not config.local_rope_theta:
        return everywhere, everywhere
    local = dataclasses.replace(config, rope_theta=config.local_rope_theta, rope_scaling=RopeScaling())
    return everywhere, rope_table(positions, local)


def rope_table(positions: jax.Array, config: ModelConfig) -> Table:
    """Cosines and sines of the rotation angles of tokens, times ``rope_scaling.gain`` (1 except with YaRN), each
    float32 (*positions.shape, head_dim // 2). positions: of tokens in their documents, integer, of any shape."""
    width, gain = config.head_dim, config.rope_scaling.gain
    frequency = config.rope_theta ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angle = positions[..., None].astype(jnp.float32) * _stretched(frequency, config)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return (cos, sin) if gain == 1.0 else (cos * gain, sin * gain)


def _stretched(frequency: jax.Array, config: ModelConfig) -> jax.Array:
    """Frequencies (radians per token) changed for a longer context, by the kind of ``config.rope_scaling``.
    linear: Chen et al. 2023 (arXiv 2306.15595), position interpolation. llama3: the rule of the Llama 3.1 release
    (``apply_scaling``): high frequencies, which turn often in the pretraining context, are kept, low ones interpolated.
    yarn: Peng et al. 2023 (arXiv 2309.00071), the same with a ramp over the numbers of the frequencies, from 0."""
    scaling = config.rope_scaling
    if scaling.kind == "none":
        return frequency
    if scaling.kind == "linear":
        return frequency / scaling.factor
    if scaling.kind == "yarn":
        first, last = (
            config.head_dim * math.log(scaling.original_max_seq_len / (turns * 2 * math.pi))
            / (2 * math.log(config.rope_theta))
            for turns in (scaling.beta_fast, scaling.beta_slow)
        )  # fmt: skip
        first, last = max(math.floor(first), 0), min(math.ceil(last), config.head_dim - 1)
        ramp = jnp.clip((jnp.arange(len(frequency)) - first) / (last - first or 0.001), 0.0, 1.0)
        return (1 - ramp) * frequency + ramp * frequency / scaling.factor
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    turns = scaling.original_max_seq_len * frequency / (2 * math.pi)
    kept = jnp.clip((turns - low) / (high - low), 0.0, 1.0)
    return kept * frequency + (1 - kept) * frequency / scaling.factor


def apply_rope(x: jax.Array, table: Table) -> jax.Array:
    """Rotate the feature pairs (i, i + head_dim / 2) of every head by the angles in ``table``. x: (..., heads,
    head_dim); table: two arrays (..., head_dim // 2) without the axis of heads. Keeps the dtype of x."""
    cos, sin = (t[..., None, :] for t in table)
    left, right = jnp.split(x.astype(sum_dtype(x)), 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1).astype(x.dtype)
