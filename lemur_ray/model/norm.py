"""Root-mean-square norm in float32, with a custom vector-Jacobian product.

The weight's gradient is summed over one flat token axis: over (rows, length) XLA's CPU backend takes thirty times as
long."""

from functools import partial

import jax
import jax.numpy as jnp

from lemur_ray.model.matmul import sum_dtype


def _inverse(x32: jax.Array, eps: float) -> jax.Array:
    return jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x: jax.Array, weight_D: jax.Array, eps: float) -> jax.Array:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, computed in float32 and returned in the dtype of x."""
    wide = x.astype(sum_dtype(x))
    return (wide * _inverse(wide, eps) * weight_D.astype(wide.dtype)).astype(x.dtype)


def _forward(x: jax.Array, weight_D: jax.Array, eps: float) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return rms_norm(x, weight_D, eps), (x, weight_D)


def _backward(eps: float, saved: tuple[jax.Array, jax.Array], g: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, weight_D = saved
    x32, g32 = x.astype(jnp.float32), g.astype(jnp.float32)
    inverse = _inverse(x32, eps)
    unit = x32 * inverse
    slope = g32 * weight_D.astype(jnp.float32)
    dx = inverse * (slope - unit * jnp.mean(slope * unit, axis=-1, keepdims=True))
    dw = jnp.sum((g32 * unit).reshape(-1, x.shape[-1]), axis=0)
    return dx.astype(x.dtype), dw.astype(weight_D.dtype)


rms_norm.defvjp(_forward, _backward)
