"""The chunked loss against the full one, and what it never allocates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.model import loss as loss_module
from lemur_ray.model.loss import chunk_length, cross_entropy

ROWS, LENGTH, DIM, VOCAB = 2, 48, 16, 40


def given() -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((ROWS, LENGTH, DIM)), jnp.float32)
    head = jnp.asarray(rng.standard_normal((DIM, VOCAB)), jnp.float32)
    targets = jnp.asarray(rng.integers(0, VOCAB, (ROWS, LENGTH)), jnp.int32)
    weights = jnp.asarray(rng.random((ROWS, LENGTH)) * (rng.random((ROWS, LENGTH)) > 0.3), jnp.float32)
    return x, head, targets, weights


def full(x: jax.Array, head: jax.Array, targets: jax.Array, weights: jax.Array) -> jax.Array:
    logits = x @ head
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jnp.sum(weights * (jax.nn.logsumexp(logits, -1) - picked))


@pytest.mark.parametrize("elements", [1, ROWS * VOCAB * 5, 1 << 22])
def test_the_loss_and_its_gradients_equal_the_full_ones_in_any_chunks(
    elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", elements)
    x, head, targets, weights = given()

    def chunked(x: jax.Array, head: jax.Array) -> jax.Array:
        return 3.0 * cross_entropy(x, head, targets, weights).total

    found, slopes = jax.value_and_grad(chunked, argnums=(0, 1))(x, head)
    expected, wanted = jax.value_and_grad(lambda x, head: 3.0 * full(x, head, targets, weights), (0, 1))(x, head)
    assert abs(float(found - expected)) < 1e-6 * abs(float(expected))
    for a, b in zip(slopes, wanted, strict=True):
        assert jnp.abs(a - b).max() < 1e-5


def test_per_token_losses_are_unweighted_and_the_same_without_a_gradient() -> None:
    x, head, targets, weights = given()
    without = cross_entropy(x, head, targets, weights)
    (_, within), _ = jax.value_and_grad(lambda x: cross_entropy(x, head, targets, weights), has_aux=True)(x)
    assert without.per_token.shape == (ROWS, LENGTH)
    assert jnp.abs(without.per_token - within).max() < 1e-6
    assert jnp.abs(jnp.sum(without.per_token * weights) - without.total) < 1e-3


def test_operands_in_bfloat16_give_nearly_the_same_loss_and_gradient() -> None:
    x, head, targets, weights = given()

    def loss(x: jax.Array, operand_dtype: str) -> jax.Array:
        return cross_entropy(x, head, targets, weights, operand_dtype).total

    exact, slope = jax.value_and_grad(loss)(x, "float32")
    rounded, rounded_slope = jax.value_and_grad(loss)(x, "bfloat16")
    assert rounded_slope.dtype == jnp.float32
    assert abs(float(rounded - exact)) < 3e-3 * float(exact)
    assert jnp.abs(rounded_slope - slope).max() < 3e-2 * jnp.abs(slope).max()


def test_huge_logits_give_a_finite_loss() -> None:
    x, head, targets, weights = given()
    out, slope = jax.value_and_grad(lambda x: cross_entropy(x, head, targets, weights).total)(x * 1e4)
    assert jnp.isfinite(out)
    assert jnp.isfinite(slope).all()


def test_chunks_divide_the_row_and_stay_within_the_limit() -> None:
    assert chunk_length(1, 1024, 2048) * 2048 <= loss_module.CHUNK_ELEMENTS
    assert 1024 % chunk_length(1, 1024, 32_000) == 0
    assert chunk_length(1024, 7, 10**9) == 1
