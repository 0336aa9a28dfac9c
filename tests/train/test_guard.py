"""Which steps are skipped, and that a skipped one leaves no trace."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.train.guard import WINDOW, GuardState, check, init_guard

JUDGE = jax.jit(partial(check, sigmas=6.0))


def fill(count: int) -> GuardState:
    rng = np.random.default_rng(0)
    state = init_guard()
    for _ in range(count):
        skip, state = JUDGE(state, jnp.float32(3 + 0.1 * rng.standard_normal()), jnp.float32(1 + 0.05 * rng.random()))
        assert not bool(skip)
    return state


@pytest.mark.parametrize(("loss", "norm"), [(np.nan, 1.0), (3.0, np.inf), (-np.inf, 1.0)])
def test_values_that_are_not_finite_are_skipped_from_the_first_step(loss: float, norm: float) -> None:
    state = init_guard()
    skip, after = JUDGE(state, jnp.float32(loss), jnp.float32(norm))
    assert bool(skip)
    assert all((a == b).all() for a, b in zip(state, after, strict=True))


def test_a_spike_is_skipped_once_the_window_is_full() -> None:
    early, full = fill(WINDOW - 1), fill(WINDOW)
    assert not bool(JUDGE(early, jnp.float32(30.0), jnp.float32(1.0))[0])
    for loss, norm in ((30.0, 1.0), (3.0, 40.0)):
        skip, after = JUDGE(full, jnp.float32(loss), jnp.float32(norm))
        assert bool(skip)
        assert all((a == b).all() for a, b in zip(full, after, strict=True))


def test_without_a_limit_only_what_is_not_finite_is_skipped() -> None:
    full = fill(WINDOW)
    assert not bool(check(full, jnp.float32(30.0), jnp.float32(40.0), sigmas=0.0)[0])
    assert bool(check(full, jnp.float32(np.nan), jnp.float32(1.0), sigmas=0.0)[0])


def test_ordinary_and_falling_losses_are_kept_and_enter_the_window() -> None:
    full = fill(WINDOW + 3)
    skip, after = JUDGE(full, jnp.float32(0.5), jnp.float32(1.0))
    assert not bool(skip)
    assert int(after.accepted) == WINDOW + 4
    assert float(after.losses[3]) == 0.5
