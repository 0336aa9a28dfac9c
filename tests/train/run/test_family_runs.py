"""Runs that start from an imported model of another family than Llama, whole and with adapters, and their export."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from lemur_ray.config import LoraConfig, OptimizerConfig, Recipe
from lemur_ray.weights.convert import Convert, convert
from lemur_ray.weights.hf_config import read_config
from tests.model.logits import logits
from tests.weights.torch_models import saved
from tests.weights.whole_models import params_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rank"),
    [
        pytest.param("qwen2, tied", 0, marks=pytest.mark.sweep),
        ("qwen3", 2),
        pytest.param("gemma 3", 2, marks=pytest.mark.sweep),
    ],
)
def test_a_run_from_an_imported_family_is_exported_to_it(
    name: str, rank: int, tmp_path: Path, run_here: Callable, small_recipe: Callable[..., Recipe]
) -> None:
    """The tokenizer has 321 ids, more than the model rows, so rows are added too."""
    stored = read_config(saved(name, tmp_path / "hf"))
    recipe = dataclasses.replace(
        small_recipe(steps=4, eval_rows=0), model=dataclasses.replace(stored, vocab_size=321),
        optimizer=OptimizerConfig(peak_lr=1e-2, warmup_steps=1), lora=LoraConfig(rank=rank),
    )  # fmt: skip
    run_here(recipe, tmp_path / "run", init_from=str(tmp_path / "hf"))
    convert(Convert(str(tmp_path / "run"), str(tmp_path / "out")), str(tmp_path / "out"))
    params = params_of(tmp_path / "run")
    assert np.abs(params["layers"]["wq"] - params_of(tmp_path / "out")["layers"]["wq"]).max() == 0
    theirs = AutoModelForCausalLM.from_pretrained(str(tmp_path / "out"), attn_implementation="eager").float().eval()
    ids = np.random.default_rng(0).integers(0, 321, (1, 60))
    with torch.no_grad():
        expected = theirs(torch.tensor(ids)).logits.numpy()
    ours = logits(params, recipe.model, jnp.asarray(ids), jnp.ones((1, 60), jnp.int32), jnp.arange(60)[None])
    assert np.abs(np.asarray(ours) - expected).max() < 1e-4
