"""Schedule numbers of the paper's recipe, and what each rule does to which leaf."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.config import ModelConfig, OptimizerConfig
from lemur_ray.model.llama import init_params
from lemur_ray.recipes import get_recipe
from lemur_ray.train.muon import COEFFICIENTS, orthogonalise
from lemur_ray.train.optimizer import direction, is_matrix, learning_rate

MODEL = ModelConfig(vocab_size=24, num_layers=2, dim=16, ffn_dim=32, num_heads=2, num_kv_heads=2, head_dim=8)


def test_the_schedule_has_the_numbers_of_the_paper() -> None:
    recipe = get_recipe("lemur-70b")

    def rate(update: int) -> float:
        return float(learning_rate(recipe.optimizer, recipe.train.steps, np.float64(update), xp=np))

    assert recipe.train.steps == 21_458
    for update, expected in ((1, 2e-8), (2_000, 4e-5), (21_458, 4e-6)):
        assert abs(rate(update) - expected) < 1e-12
    rates = [rate(update) for update in range(1, 21_459, 97)]
    peak = int(np.argmax(rates))
    assert all(np.diff(rates[: peak + 1]) > 0)
    assert all(np.diff(rates[peak:]) < 0)


@pytest.mark.parametrize(("warmup", "steps"), [(0, 10), (30, 5), (1, 1)])
def test_short_runs_have_a_schedule_too(warmup: int, steps: int) -> None:
    config = OptimizerConfig(warmup_steps=warmup, peak_lr=1.0)
    rates = [float(learning_rate(config, steps, np.float64(update), xp=np)) for update in range(1, steps + 1)]
    assert all(0 < rate <= 1 for rate in rates)


def test_matrices_are_all_but_the_norms() -> None:
    marks = is_matrix(MODEL)
    assert marks["embed"]
    assert marks["head"]
    assert not marks["final_norm"]
    assert {name for name, matrix in marks["layers"].items() if not matrix} == {"attn_norm", "mlp_norm"}


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_without_a_gradient_only_matrices_decay(name: str) -> None:
    rule = direction(OptimizerConfig(name=name, weight_decay=0.1), MODEL)  # type: ignore[arg-type]
    params = init_params(MODEL, 0)
    towards, _ = rule.update(jax.tree.map(jnp.zeros_like, params), rule.init(params), params)
    for found, param, matrix in zip(
        *(jax.tree.leaves(tree) for tree in (towards, params, is_matrix(MODEL))), strict=True
    ):
        assert jnp.abs(found - (0.1 * param if matrix else 0)).max() < 1e-7


def test_muon_turns_every_layer_into_a_near_orthogonal_matrix_of_its_own() -> None:
    config = OptimizerConfig(name="muon", weight_decay=0.0, muon_lr_scale=5.0)
    rule = direction(config, MODEL)
    params = init_params(MODEL, 0)
    rng = np.random.default_rng(0)
    grads = jax.tree.map(lambda p: jnp.asarray(rng.standard_normal(p.shape), jnp.float32), params)
    towards, _ = rule.update(grads, rule.init(params), params)
    for name, factor in (("wq", 5.0), ("up", 5.0 * 2**0.5), ("down", 5.0)):
        for layer in range(MODEL.num_layers):
            values = np.linalg.svd(np.asarray(towards["layers"][name][layer]), compute_uv=False)
            assert values.max() < 1.3 * factor
            assert values.min() > 0.3 * factor
    # The second layer's direction does not depend on the first layer's gradient.
    changed = {**grads, "layers": {**grads["layers"], "wq": grads["layers"]["wq"].at[0].multiply(-3.0)}}
    other, _ = rule.update(changed, rule.init(params), params)
    assert jnp.abs(other["layers"]["wq"][1] - towards["layers"]["wq"][1]).max() < 1e-6
    assert jnp.abs(other["layers"]["wq"][0] - towards["layers"]["wq"][0]).max() > 1


@pytest.mark.parametrize("shape", [(2, 16, 16), (2, 16, 40), (2, 48, 16), (2, 16, 24)])
def test_the_orthogonalisation_is_that_of_optax(shape: tuple[int, ...]) -> None:
    from optax.contrib import MuonDimensionNumbers
    from optax.contrib._muon import orthogonalize_via_newton_schulz

    x = jax.random.normal(jax.random.key(0), shape)
    dimensions = MuonDimensionNumbers(reduction_axis=1, output_axis=2)
    oracle = orthogonalize_via_newton_schulz(x, jnp.array(COEFFICIENTS), 5, dimension_numbers=dimensions)
    assert jnp.abs(jax.jit(orthogonalise)(x) - oracle).max() < 1e-4
    rounded = jax.jit(orthogonalise, static_argnums=1)(x, "bfloat16")
    assert jnp.abs(rounded - oracle).max() < 0.1 * jnp.abs(oracle).max()
    assert jnp.all(orthogonalise(jnp.zeros((1, 4, 4))) == 0)


@pytest.mark.parametrize("operands", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(32, 32), (96, 32)])
def test_no_direction_of_an_uneven_gradient_is_blown_up(shape: tuple[int, int], operands: str) -> None:
    rng, rank = np.random.default_rng(0), min(shape)
    left, right = (np.linalg.qr(rng.standard_normal((side, rank)))[0] for side in shape)
    uneven = np.stack([(left / np.arange(1.0, rank + 1) ** decay) @ right.T for decay in (1, 2, 4)])
    found = np.asarray(jax.jit(orthogonalise, static_argnums=1)(jnp.asarray(uneven, jnp.float32), operands))
    assert np.linalg.svd(found, compute_uv=False).max() < 1.3


def test_muon_leaves_embedding_head_and_norms_to_adamw() -> None:
    params = init_params(MODEL, 0)
    grads = jax.tree.map(lambda p: jnp.cos(jnp.arange(p.size, dtype=jnp.float32)).reshape(p.shape), params)
    found = {}
    for name in ("adamw", "muon"):
        rule = direction(OptimizerConfig(name=name), MODEL)  # type: ignore[arg-type]
        found[name], _ = rule.update(grads, rule.init(params), params)
    for leaf in ("embed", "head", "final_norm"):
        assert (found["adamw"][leaf] == found["muon"][leaf]).all()
    assert (found["adamw"]["layers"]["attn_norm"] == found["muon"]["layers"]["attn_norm"]).all()


def test_a_tied_model_has_a_rule_too() -> None:
    tied = dataclasses.replace(MODEL, tie_embeddings=True)
    params = init_params(tied, 0)
    rule = direction(OptimizerConfig(name="muon"), tied)
    towards, _ = rule.update(params, rule.init(params), params)
    assert jax.tree.structure(towards) == jax.tree.structure(params)
