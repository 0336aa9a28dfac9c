"""Which updates to skip: losses or gradient norms that are not finite or stand far outside the recent ones.

The rule is MaxText's: more than so many standard deviations (theirs: six) above the mean of the last 128 accepted
steps. A skipped step leaves no trace in the window. Knows nothing of what a step does.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

WINDOW = 128


class GuardState(NamedTuple):
    """The last accepted values, as a ring."""

    losses: jax.Array
    """(WINDOW,) float32."""
    norms: jax.Array
    """(WINDOW,) float32."""
    accepted: jax.Array
    """() int32: steps accepted so far."""


def init_guard() -> GuardState:
    """An empty window; spikes are judged once it is full, non-finite values from the first step."""
    return GuardState(jnp.zeros(WINDOW), jnp.zeros(WINDOW), jnp.zeros((), jnp.int32))


def check(state: GuardState, loss: jax.Array, norm: jax.Array, sigmas: float) -> tuple[jax.Array, GuardState]:
    """(skip () bool, the next state: unchanged where skip). ``sigmas`` 0: only what is not finite is skipped."""

    def spike(value: jax.Array, seen: jax.Array) -> jax.Array:
        return value > jnp.mean(seen) + sigmas * jnp.std(seen)

    full = state.accepted >= WINDOW
    skip = ~(jnp.isfinite(loss) & jnp.isfinite(norm))
    if sigmas > 0:
        skip |= full & (spike(loss, state.losses) | spike(norm, state.norms))
    slot = state.accepted % WINDOW
    after = GuardState(state.losses.at[slot].set(loss), state.norms.at[slot].set(norm), state.accepted + 1)
    return skip, jax.tree.map(lambda old, new: jnp.where(skip, old, new), state, after)
