"""Spike guard: skips updates whose loss or gradient norm is not finite or far above recent values.

As in MaxText, a spike is more than a number of standard deviations (six there) above the mean of the last 128 accepted
steps. A skipped step does not enter the window. Knows nothing of how a step is computed."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

WINDOW = 128
"""Number of accepted steps that a new value is compared with."""


class GuardState(NamedTuple):
    """Ring buffers of the losses and gradient norms of the last WINDOW accepted steps."""

    losses: jax.Array
    """(WINDOW,) float32."""
    norms: jax.Array
    """(WINDOW,) float32."""
    accepted: jax.Array
    """() int32: number of accepted steps."""


def init_guard() -> GuardState:
    """An empty window; spikes are judged once it is full, non-finite values from the first step."""
    return GuardState(jnp.zeros(WINDOW), jnp.zeros(WINDOW), jnp.zeros((), jnp.int32))


def check(state: GuardState, loss: jax.Array, norm: jax.Array, sigmas: float) -> tuple[jax.Array, GuardState]:
    """Judge a step: (() bool, whether to skip its update; next state, unchanged if skipped).
    loss, norm: () float32, loss and gradient norm of the step. sigmas: standard deviations above the mean at which a
    value is a spike; 0: skip only non-finite values."""

    def spike(value: jax.Array, recent: jax.Array) -> jax.Array:
        return value > jnp.mean(recent) + sigmas * jnp.std(recent)

    full = state.accepted >= WINDOW
    skip = ~(jnp.isfinite(loss) & jnp.isfinite(norm))
    if sigmas > 0:
        skip |= full & (spike(loss, state.losses) | spike(norm, state.norms))
    slot = state.accepted % WINDOW
    after = GuardState(state.losses.at[slot].set(loss), state.norms.at[slot].set(norm), state.accepted + 1)
    return skip, jax.tree.map(lambda old, new: jnp.where(skip, old, new), state, after)
