"""The step: equal however a batch is cut, nothing left behind by a skipped update, memory, learning."""

import dataclasses
import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lemur_ray.config import DataConfig, ModelConfig, OptimizerConfig, Recipe, TrainConfig
from lemur_ray.train.step import Batch, TrainState, execution, gradients, init_state, make_train_step

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))
from tests.model.tiny_batches import packed_batch

MODEL = ModelConfig(vocab_size=64, num_layers=1, dim=32, ffn_dim=64, num_heads=8, num_kv_heads=8, head_dim=8)
RECIPE = Recipe(
    model=MODEL,
    optimizer=OptimizerConfig(name="adamw", peak_lr=1e-2, warmup_steps=2),
    data=DataConfig(seq_len=32),
    train=TrainConfig(steps=20, rows_per_step=8),
)
HOW = execution(RECIPE)
DOCUMENTS = [[20, 9], [31], [5, 5, 5, 5], [32], [2, 30], [16, 16], [12], [25, 3]]
"""Rows with different numbers of trained tokens: a mean of microbatch means would be another number."""


def batch(seed: int = 0) -> Batch:
    return packed_batch(DOCUMENTS, MODEL.vocab_size, length=32, seed=seed)


@functools.cache
def step_of(recipe: Recipe) -> Any:
    """Compiled once for all tests: that takes most of their time."""
    return make_train_step(recipe, num_sources=2)


gradient = jax.jit(gradients, static_argnames=("recipe", "how"))


def run(recipe: Recipe, steps: int = 3) -> tuple[TrainState, list[float]]:
    state, step = init_state(recipe), step_of(recipe)
    losses = []
    for seed in range(steps):
        state, metrics = step(state, batch(seed))
        losses.append(float(metrics["loss"]))
    return state, losses


def assert_close(a: object, b: object, relative: float) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.abs(np.asarray(x) - np.asarray(y)).max() <= relative * max(1e-3, np.abs(np.asarray(y)).max())


def test_one_batch_equals_four_microbatches() -> None:
    whole, losses = run(RECIPE)
    cut = dataclasses.replace(RECIPE, train=dataclasses.replace(RECIPE.train, microbatches=4))
    parts, same = run(cut)
    np.testing.assert_allclose(losses, same, rtol=1e-6)
    at = init_state(RECIPE).params
    assert_close(gradient(at, batch(), RECIPE, HOW)[1], gradient(at, batch(), cut, HOW)[1], 2e-6)
    assert_close(whole.params, parts.params, 2e-5)  # Adam divides by the root of the second moment
    with pytest.raises(ValueError, match="microbatches 3 does not divide a batch of 8 rows"):
        run(dataclasses.replace(RECIPE, train=dataclasses.replace(RECIPE.train, microbatches=3)), steps=1)


def test_a_batch_with_nan_or_without_trained_tokens_changes_no_parameter_by_accident() -> None:
    step = step_of(RECIPE)
    state, _ = step(init_state(RECIPE), batch())
    before = jax.tree.map(np.array, state)
    poisoned = {**batch(1), "loss_weights": batch(1)["loss_weights"].at[0, 0].set(jnp.nan)}
    state, metrics = step(state, poisoned)
    assert bool(metrics["skipped"])
    assert int(state.step) == 2
    for a, b in zip(
        jax.tree.leaves((before.params, before.opt)), jax.tree.leaves((state.params, state.opt)), strict=True
    ):
        assert np.array_equal(a, b)
    silent = {**batch(1), "loss_weights": jnp.zeros_like(batch(1)["loss_weights"])}
    state, metrics = step(state, silent)
    assert float(metrics["loss"]) == 0.0
    assert float(metrics["grad_norm"]) == 0.0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))


def test_signed_weights_are_divided_by_the_normaliser_and_none_changes_nothing() -> None:
    step, weights = step_of(RECIPE), batch()["loss_weights"]
    signs = jnp.where(jnp.cumsum(weights, axis=1) % 2 == 0, -1.0, 1.0)
    signed = weights * signs - (weights * signs).sum() / weights.sum() * weights  # their sum is 0
    counted = {**batch(), "loss_weights": signed, "normaliser": weights.sum(axis=1)}
    state, metrics = step(init_state(RECIPE), counted)
    grads = gradient(init_state(RECIPE).params, {**batch(), "loss_weights": signed}, RECIPE, HOW)[1]
    assert float(jnp.abs(signed.sum())) < 1e-4
    wanted = float(optax.tree.norm(grads)) / float(weights.sum())
    assert float(metrics["grad_norm"]) == pytest.approx(wanted, rel=1e-5)
    before = jax.tree.map(np.array, state)
    state, metrics = step(state, {**counted, "loss_weights": 0 * signed, "normaliser": jnp.zeros(8)})
    assert (bool(metrics["skipped"]), int(state.step)) == (True, 2)
    kept = zip(*map(jax.tree.leaves, ((before.params, before.opt), (state.params, state.opt))), strict=True)
    assert all(np.array_equal(a, b) for a, b in kept)


def test_the_sum_of_the_weights_as_normaliser_is_the_default_to_the_bit() -> None:
    given = {**batch(), "normaliser": jnp.zeros(8).at[0].set(batch()["loss_weights"].sum())}
    outcomes = [step_of(RECIPE)(init_state(RECIPE), one) for one in (batch(), given)]
    for a, b in zip(*map(jax.tree.leaves, outcomes), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))


def test_sums_per_source_add_up_to_the_loss() -> None:
    _, metrics = step_of(RECIPE)(init_state(RECIPE), batch())
    assert metrics["source_loss_sum"].shape == (2,)
    total, weight = float(metrics["source_loss_sum"].sum()), float(metrics["source_weight_sum"].sum())
    assert weight == float(metrics["weight_sum"]) == float(batch()["loss_weights"].sum())
    assert total / weight == pytest.approx(float(metrics["loss"]), rel=1e-6)
    assert float(metrics["lr"]) == pytest.approx(5e-3)


def test_the_gradient_is_clipped_by_its_global_norm() -> None:
    clipped = dataclasses.replace(RECIPE, optimizer=dataclasses.replace(RECIPE.optimizer, clip_norm=1e-9, eps=1.0))
    state, metrics = step_of(clipped)(init_state(clipped), batch())
    assert float(metrics["grad_norm"]) > 1e-3
    norms = state.params["final_norm"]  # not decayed: moves by lr x clipped gradient / eps
    assert float(jnp.abs(norms - 1).max()) < 1e-9


def test_without_document_masks_a_row_is_one_document() -> None:
    open_rows = dataclasses.replace(RECIPE, data=dataclasses.replace(RECIPE.data, mask_documents=False))
    merged = {**batch(), "segment_ids": jnp.ones((8, 32), jnp.int32)}
    merged["positions"] = jnp.broadcast_to(jnp.arange(32, dtype=jnp.int32), (8, 32))
    params = init_state(RECIPE).params
    found, expected = gradient(params, batch(), open_rows, HOW), gradient(params, merged, RECIPE, HOW)
    assert float(found[0]) == float(expected[0])
    assert float(found[0]) != float(gradient(params, batch(), RECIPE, HOW)[0])


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_few_steps_on_one_batch_lower_its_loss(name: str) -> None:
    recipe = dataclasses.replace(RECIPE, optimizer=dataclasses.replace(RECIPE.optimizer, name=name, muon_lr_scale=1.0))
    state, step = init_state(recipe), step_of(recipe)
    losses = []
    for _ in range(15):
        state, metrics = step(state, batch())
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.7 * losses[0]


def test_bfloat16_operands_on_cpu_follow_float32_closely() -> None:
    rounded = dataclasses.replace(RECIPE, train=dataclasses.replace(RECIPE.train, compute_dtype="bfloat16"))
    exact, losses = run(RECIPE)
    found, near = run(rounded)
    np.testing.assert_allclose(losses, near, rtol=2e-3)
    assert {leaf.dtype for leaf in jax.tree.leaves(found.params)} == {
        leaf.dtype for leaf in jax.tree.leaves(exact.params)
    }


def test_a_compiled_step_has_no_array_of_all_logits() -> None:
    model = dataclasses.replace(MODEL, vocab_size=32_000, dim=16, ffn_dim=16)
    recipe = dataclasses.replace(RECIPE, model=model)
    state = jax.eval_shape(lambda: init_state(recipe))
    shapes = {name: jax.ShapeDtypeStruct((2, 512), array.dtype) for name, array in batch().items()}
    shapes["source"] = jax.ShapeDtypeStruct((2,), jnp.int32)
    text = step_of(recipe).lower(state, shapes).compile().as_text()
    sizes = {int(np.prod([int(n) for n in dims.split(",")])) for dims in re.findall(r"f32\[([\d,]+)\]", text)}
    assert max(sizes) <= 4 << 20 < 2 * 512 * 32_000


MESHES = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
sys.path[:0] = sys.argv[1:]
import jax, numpy as np
from lemur_ray.config import MeshConfig
from lemur_ray.model.sharding import batch_sharding, make_mesh
from lemur_ray.train.step import abstract_state, execution, init_state, make_train_step
from test_step import RECIPE, batch
start = jax.tree.map(np.asarray, init_state(RECIPE))
results = []
for fsdp, tp in ((1, 1), (8, 1), (4, 2), (2, 4)):
    mesh = make_mesh(MeshConfig(fsdp=fsdp, tp=tp), jax.devices()[: fsdp * tp])
    place = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(RECIPE, mesh))
    state = jax.tree.map(jax.device_put, start, place)
    step, losses = make_train_step(RECIPE, mesh, num_sources=2), []
    for seed in range(3):
        state, metrics = step(state, jax.device_put(batch(seed), batch_sharding(mesh)))
        losses.append(float(metrics["loss"]))
    results.append((losses, jax.tree.map(np.asarray, state.params)))
    wq = state.params["layers"]["wq"]
    assert wq.addressable_shards[0].data.size * fsdp * tp == wq.size
for losses, params in results[1:]:
    np.testing.assert_allclose(losses, results[0][0], rtol=1e-5)
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(results[0][1])):
        assert np.abs(a - b).max() < 1e-4 * max(1, np.abs(b).max())
print("meshes agree")
"""


@pytest.mark.slow
def test_every_mesh_gives_the_same_losses() -> None:
    here = Path(__file__).resolve().parent
    paths = [str(here.parents[1]), str(here), str(here.parent / "model")]
    done = subprocess.run([sys.executable, "-c", MESHES, *paths], capture_output=True, text=True, timeout=250)
    assert done.stdout.strip().endswith("meshes agree"), done.stderr[-2000:]
