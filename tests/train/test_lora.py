"""Adapters: only they learn and are saved, gradients obey the chain rule, resume is exact, merged is a plain model."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.config import LoraConfig, ModelConfig, OptimizerConfig, Recipe
from lemur_ray.model.llama import hidden_states, init_params, output_head
from lemur_ray.model.lora import adapted, first_adapters
from lemur_ray.model.matmul import LowRank, matmul
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped
from lemur_ray.train.step import execution, gradients
from lemur_ray.weights.convert import Convert, convert
from lemur_ray.weights.open_model import ModelNotFound, open_model
from tests.weights.whole_models import params_of, write_model

Recipes = Callable[..., Recipe]
LORA = LoraConfig(rank=4, alpha=8.0)


class Killed(BaseException):
    """Stands for the end of the process in the middle of a run."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lora")


@pytest.fixture
def base(home: Path, corpus: Path, small_recipe: Recipes) -> Path:
    """A model folder to start from, with the corpus' tokenizer."""
    if not (home / "base").exists():
        model = small_recipe().model
        params = jax.tree.map(np.asarray, init_params(model, 0))
        write_model(params, model, Tokenizer.load(corpus / "tokenizer.json"), home / "base")
    return home / "base"


def with_lora(recipe: Recipe, lora: LoraConfig = LORA) -> Recipe:
    optimizer = OptimizerConfig(peak_lr=1e-2, warmup_steps=2, final_lr_fraction=0.0, weight_decay=0.0)
    return dataclasses.replace(recipe, optimizer=optimizer, lora=lora)


@pytest.fixture
def tuned(home: Path, base: Path, run_here: Callable, small_recipe: Recipes) -> Path:
    """Adapters of that run, twelve steps."""
    if not (home / "tuned").exists():
        run_here(with_lora(small_recipe(eval_rows=0)), home / "tuned", init_from=str(base))
    return home / "tuned"


def adapters_of(run: Path, recipe: Recipe) -> dict:
    """What the newest checkpoint of a run holds as parameters, and nothing else."""
    import orbax.checkpoint as ocp

    newest = max((p for p in (run / "checkpoints").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    tree = ocp.StandardCheckpointer().restore(newest / "state")
    return tree["params"]


@partial(jax.jit, static_argnums=1)
def _logits(params: dict, model: ModelConfig) -> jax.Array:
    tokens = jnp.arange(64).reshape(1, 64) % 300
    x = hidden_states(params, model, tokens, jnp.ones_like(tokens), jnp.arange(64)[None])
    return matmul(x, output_head(params))


def logits(params: dict, recipe: Recipe) -> np.ndarray:
    return np.asarray(_logits(params, recipe.model))


def test_a_model_with_fresh_adapters_is_the_model_without(small_recipe: Recipes) -> None:
    recipe = small_recipe()
    params = init_params(recipe.model, 0)
    fresh = adapted(params, first_adapters(recipe.model, LORA, 0, params), LORA)
    assert np.array_equal(logits(fresh, recipe), logits(params, recipe))


@pytest.mark.slow
@pytest.mark.parametrize("unroll", [pytest.param(False, marks=pytest.mark.sweep), True])
def test_gradients_are_those_of_the_whole_matrices_by_the_chain_rule(small_recipe: Recipes, unroll: bool) -> None:
    recipe = with_lora(small_recipe(eval_rows=0))
    how = execution(recipe)._replace(unroll=unroll)
    params = init_params(recipe.model, 0)
    adapters = first_adapters(recipe.model, LORA, 1, params)
    adapters["layers"] = {
        name: {"a": one["a"], "b": 0.1 * jax.random.normal(jax.random.key(i), one["b"].shape)}
        for i, (name, one) in enumerate(sorted(adapters["layers"].items()))
    }
    merged = {**params, "layers": dict(params["layers"])}
    for name, one in adapters["layers"].items():
        merged["layers"][name] = params["layers"][name] + 2.0 * one["a"] @ one["b"]
    rng = np.random.default_rng(0)
    tokens = jnp.asarray(rng.integers(0, 320, (2, 64)), jnp.int32)
    batch = {"tokens": tokens, "targets": jnp.roll(tokens, -1, 1), "segment_ids": jnp.ones_like(tokens),
             "positions": jnp.broadcast_to(jnp.arange(64), (2, 64)), "loss_weights": jnp.ones((2, 64))}  # fmt: skip
    total, found, _ = jax.jit(lambda learnt: gradients(learnt, batch, recipe, how, params))(adapters)
    expected_total, whole, _ = jax.jit(lambda all_: gradients(all_, batch, recipe, how))(merged)
    np.testing.assert_allclose(total, expected_total, rtol=1e-5)
    for name, one in adapters["layers"].items():
        dw = whole["layers"][name]
        expected = {"a": 2.0 * dw @ one["b"].swapaxes(1, 2), "b": 2.0 * one["a"].swapaxes(1, 2) @ dw}
        for part in ("a", "b"):
            scale = float(jnp.abs(expected[part]).max())
            np.testing.assert_allclose(found["layers"][name][part], expected[part], atol=2e-5 * scale)


def test_only_adapters_learn_and_only_they_are_saved(tuned: Path, small_recipe: Recipes) -> None:
    saved = adapters_of(tuned, small_recipe())
    assert set(saved) == {"layers"}
    assert set(saved["layers"]) == set(LORA.matrices)
    assert all(np.abs(one["b"]).max() > 0 for one in saved["layers"].values())
    losses = [json.loads(line)["loss"] for line in (tuned / "metrics.jsonl").read_text().splitlines()]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


def test_merged_is_the_model_that_was_trained_and_exports_to_a_plain_folder(
    tuned: Path, base: Path, tmp_path: Path, small_recipe: Recipes
) -> None:
    recipe = small_recipe()
    start = params_of(base)
    apart = logits(adapted(start, adapters_of(tuned, recipe), LORA), recipe)
    merged = params_of(tuned)
    assert not any(isinstance(leaf, LowRank) for leaf in jax.tree.leaves(merged))
    np.testing.assert_allclose(logits(merged, recipe), apart, atol=1e-5)
    assert np.abs(apart - logits(start, recipe)).max() > 1e-3, "tuning changed nothing"
    convert(Convert(str(tuned), str(tmp_path / "hf")), str(tmp_path / "hf"))
    assert open_model(str(tmp_path / "hf")).recipe == {}
    np.testing.assert_allclose(logits(params_of(tmp_path / "hf"), recipe), apart, atol=1e-5)


def test_a_run_that_was_killed_goes_on_exactly_as_it_would_have(
    tuned: Path, base: Path, tmp_path: Path, run_here: Callable, small_recipe: Recipes, read_losses: Callable
) -> None:
    def killed(batches: Iterator) -> Iterator:
        for number, batch in enumerate(batches):
            if number == 6:
                raise Killed
            yield batch

    recipe = with_lora(small_recipe(eval_rows=0))
    with pytest.raises(Killed):
        run_here(recipe, tmp_path / "run", init_from=str(base), feed=killed)
    lines: list[str] = []
    result = run_here(recipe, tmp_path / "run", init_from=str(base), lines=lines)
    assert any("resumed from checkpoint 4" in line for line in lines)
    assert result["replays_that_differ"] == []
    assert read_losses(tmp_path / "run") == read_losses(tuned)


@pytest.mark.slow
def test_embedding_and_head_can_learn_whole_beside_the_adapters(
    base: Path, tmp_path: Path, run_here: Callable, small_recipe: Recipes
) -> None:
    lora = dataclasses.replace(LORA, matrices=("wq", "down"), also=("embed", "head"))
    run_here(with_lora(small_recipe(steps=4, eval_rows=0), lora), tmp_path / "run", init_from=str(base))
    before, after = params_of(base), params_of(tmp_path / "run")
    changed = {name for name in before["layers"] if not np.array_equal(before["layers"][name], after["layers"][name])}
    assert changed == {"wq", "down"}
    assert not np.array_equal(before["embed"], after["embed"])
    assert not np.array_equal(before["head"], after["head"])
    assert np.array_equal(before["final_norm"], after["final_norm"])


def test_settings_that_cannot_work_are_refused(
    tuned: Path, base: Path, tmp_path: Path, run_here: Callable, small_recipe: Recipes
) -> None:
    with pytest.raises(TrainingStopped, match="--init-from"):
        run_here(with_lora(small_recipe(eval_rows=0)), tmp_path / "a")
    muon = dataclasses.replace(small_recipe(eval_rows=0), lora=LORA)
    with pytest.raises(ValueError, match="adapters learn with adamw"):
        run_here(muon, tmp_path / "b", init_from=str(base))
    with pytest.raises(ValueError, match="expected some of wq, wk"):
        LoraConfig(rank=1, matrices=("wz",))
    other = with_lora(small_recipe(eval_rows=0), dataclasses.replace(LORA, rank=2))
    with pytest.raises(RunFolderError, match=r"lora\.rank"):
        run_here(other, tuned, init_from=str(base))


def test_a_base_that_has_gone_is_named(tuned: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(tuned, tmp_path / "moved")
    recipe = json.loads((tmp_path / "moved" / "recipe.json").read_text())
    recipe["init_from_path"] = "/gone"
    (tmp_path / "moved" / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(ModelNotFound, match="adapters of the model in /gone"):
        open_model(str(tmp_path / "moved"))


def test_a_hugging_face_base_that_was_exchanged_is_named(
    tuned: Path, tmp_path: Path, run_here: Callable, small_recipe: Recipes
) -> None:
    base, recipe = tmp_path / "base", with_lora(small_recipe(steps=2, eval_rows=0))
    tokenizer = Tokenizer.load(tuned / "tokenizer.json")
    write_model(params_of(tuned), recipe.model, tokenizer, base)
    run_here(recipe, tmp_path / "adapters", init_from=str(base))
    assert open_model(str(tmp_path / "adapters")).source.config.dim == recipe.model.dim
    write_model(init_params(recipe.model, 7), recipe.model, tokenizer, base)
    with pytest.raises(ModelNotFound, match=r"holds adapters of model folder .*, but in .*/base lies model folder"):
        open_model(str(tmp_path / "adapters"))


@pytest.mark.slow
def test_adapters_belong_to_the_step_that_they_were_tuned_on_whatever_became_of_the_run(
    tmp_path: Path, run_here: Callable, small_recipe: Recipes
) -> None:
    base, checkpoints = tmp_path / "base", tmp_path / "base" / "checkpoints"
    run_here(small_recipe(eval_rows=0), base)
    (checkpoints / "12").rename(tmp_path / "later")
    run_here(with_lora(small_recipe(eval_rows=0)), tmp_path / "tuned", init_from=str(base))
    before = params_of(tmp_path / "tuned")
    (tmp_path / "later").rename(checkpoints / "12")
    after = params_of(tmp_path / "tuned")
    assert jax.tree.all(jax.tree.map(np.array_equal, before, after))
    (checkpoints / "8").rename(tmp_path / "gone")
    with pytest.raises(ModelNotFound, match=r"adapters of the model in .*checkpoints/8"):
        open_model(str(tmp_path / "tuned"))


MESHES = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
sys.path[:0] = sys.argv[1:]
import dataclasses, jax, numpy as np
from lemur_ray.config import LoraConfig, MeshConfig, OptimizerConfig
from lemur_ray.model.llama import init_params
from lemur_ray.model.lora import frozen
from lemur_ray.model.sharding import batch_sharding, make_mesh, param_shardings
from lemur_ray.train.step import abstract_state, init_state, make_train_step
from test_step import RECIPE, batch
recipe = dataclasses.replace(RECIPE, lora=LoraConfig(rank=4, also=("embed",)), optimizer=OptimizerConfig())
base = jax.tree.map(np.asarray, init_params(recipe.model, 0))
start = jax.tree.map(np.asarray, init_state(recipe, base))
results = []
for fsdp, tp in ((1, 1), (4, 2)):
    mesh = make_mesh(MeshConfig(fsdp=fsdp, tp=tp), jax.devices()[: fsdp * tp])
    place = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(recipe, mesh))
    state = jax.tree.map(jax.device_put, start, place)
    frozen_base = jax.tree.map(jax.device_put, base, param_shardings(recipe.model, mesh))
    step, losses = make_train_step(recipe, mesh, num_sources=2), []
    for seed in range(3):
        state, metrics = step(state, jax.device_put(batch(seed), batch_sharding(mesh)), frozen_base)
        losses.append(float(metrics["loss"]))
    results.append(losses)
    a = state.params["layers"]["wq"]["a"]
    assert a.addressable_shards[0].data.size * fsdp == a.size
    moment = state.opt["rule"][0].mu["layers"]["wq"]["b"]
    assert moment.addressable_shards[0].data.size * tp == moment.size
np.testing.assert_allclose(results[1], results[0], rtol=1e-5)
print("meshes agree")
"""


@pytest.mark.slow
def test_adapters_are_sharded_as_their_matrices_and_every_mesh_gives_the_same_losses() -> None:
    here = Path(__file__).resolve().parent
    paths = [str(here.parents[1]), str(here), str(here.parent / "model")]
    done = subprocess.run([sys.executable, "-c", MESHES, *paths], capture_output=True, text=True, timeout=250)
    assert done.stdout.strip().endswith("meshes agree"), done.stderr[-2000:]
