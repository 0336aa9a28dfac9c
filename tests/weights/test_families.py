"""Every supported family against transformers: logits, gradients, steps of AdamW, files that come back unchanged."""

import copy
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from lemur_ray.config import DataConfig, ModelConfig, OptimizerConfig, Recipe, TrainConfig
from lemur_ray.model.attention.oracle import capped
from lemur_ray.model.llama import hidden_states, num_params, output_head
from lemur_ray.model.loss import cross_entropy
from lemur_ray.train.optimizer import direction
from lemur_ray.weights.convert import Convert, convert
from lemur_ray.weights.hf_config import read_config
from lemur_ray.weights.hf_tensors import HuggingFaceWeights, entry_of
from lemur_ray.weights.param_slices import label
from tests.weights.torch_models import FAMILIES, VOCAB, saved, tokens, torch_model
from tests.weights.whole_models import whole

LENGTH = 96
"""Several windows and several times the length from which rope is scaled."""


def recipe_of(model: ModelConfig, decay: float = 0.1) -> Recipe:
    optimizer = OptimizerConfig(b1=0.9, b2=0.95, eps=1e-5, weight_decay=decay)
    data, train = DataConfig(seq_len=LENGTH), TrainConfig(rows_per_step=2, microbatches=1)
    return Recipe(model=model, optimizer=optimizer, data=data, train=train)


def batch_of(ids: np.ndarray) -> dict[str, jax.Array]:
    """A batch of one document per row, whose last token predicts nothing."""
    weights = np.ones(ids.shape, np.float32)
    weights[:, -1] = 0
    positions = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
    arrays = {
        "tokens": ids, "targets": np.roll(ids, -1, 1), "segment_ids": np.ones_like(ids), "positions": positions,
        "loss_weights": weights,
    }  # fmt: skip
    return {name: jnp.asarray(array) for name, array in arrays.items()}


def by_name(tree: Any, config: ModelConfig) -> dict[str, np.ndarray]:
    """Leaves of a parameter tree by the names and in the orientation of transformers."""
    out = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = label(path)
        entry = entry_of(name, config)
        array = np.asarray(leaf).swapaxes(-1, -2) if entry.transpose else np.asarray(leaf)
        for layer, part in enumerate(array) if entry.stacked else [(0, array)]:
            out[entry.name.format(layer)] = part
    return out


def torch_loss(model: Any, ids: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits, sum of the losses of all next tokens) of transformers."""
    out = model(torch.tensor(ids, dtype=torch.long)).logits
    targets = torch.tensor(ids[:, 1:].reshape(-1), dtype=torch.long)
    return out, torch.nn.functional.cross_entropy(out[:, :-1].reshape(-1, VOCAB), targets, reduction="sum")


def compare(tmp_path: Path, name: str, steps: int) -> None:
    """Logits and gradients of the first step, and the losses of ``steps`` steps of AdamW, against transformers."""
    theirs = copy.deepcopy(torch_model(name))
    source = HuggingFaceWeights(saved(name, tmp_path))
    recipe, params = recipe_of(source.config), whole(source)
    assert num_params(source.config) == source.config.num_params == sum(p.numel() for p in theirs.parameters())
    rule = direction(recipe.optimizer, recipe.model)
    state = rule.init(params)

    def loss_of(params: Any, batch: Any) -> Any:
        given = batch["tokens"], batch["segment_ids"], batch["positions"]
        x = hidden_states(params, recipe.model, *given)
        cap = recipe.model.logit_cap
        losses = cross_entropy(x, output_head(params), batch["targets"], batch["loss_weights"], cap=cap)
        return losses.total, x

    step = jax.jit(jax.value_and_grad(loss_of, has_aux=True))

    decayed, plain = ([p for p in theirs.parameters() if (p.ndim > 1) == matrix] for matrix in (True, False))
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-5)
    for number in range(steps):
        ids = tokens(2, LENGTH, number)
        (total, x), grads = step(params, batch_of(ids))
        adamw.zero_grad()
        expected, loss = torch_loss(theirs, ids)
        loss.backward()
        assert abs(float(total) / loss.item() - 1) < 1e-5
        if number == 0:
            ours = capped(np.asarray(x) @ np.asarray(output_head(params)), recipe.model.logit_cap)
            assert np.abs(np.asarray(ours) - expected.detach().numpy()).max() < 1e-4
            found = by_name(grads, recipe.model)
            expected_grads = {n: p.grad.numpy() for n, p in theirs.named_parameters()}
            assert found.keys() == expected_grads.keys()
            for n, grad in expected_grads.items():
                assert np.abs(found[n] - grad).max() < 1e-5 * np.abs(grad).max(), n
        adamw.step()
        updates, state = rule.update(grads, state, params)
        params = jax.tree.map(lambda p, u: p - 1e-3 * u, params, updates)


@pytest.mark.parametrize("name", ["qwen2", "gemma 3"])
def test_logits_and_every_gradient_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """The other families are in the next test."""
    compare(tmp_path, name, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.sweep if name.split(",")[0] in ("llama", "mistral") else ())
        for name in FAMILIES
    ],
)
def test_six_steps_of_adamw_have_the_losses_of_torch(name: str, tmp_path: Path) -> None:
    compare(tmp_path, name, 6)


FEW = ("mistral", "qwen2", "gemma 3")


@pytest.mark.parametrize("name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in FAMILIES])
def test_import_and_export_give_back_every_byte_and_the_family(name: str, tmp_path: Path) -> None:
    hf, run, back = saved(name, tmp_path / "hf"), tmp_path / "run", tmp_path / "back"
    convert(Convert(str(hf), str(run), "run"), str(run))
    convert(Convert(str(run), str(back)), str(back))
    before, after = load_file(hf / "model.safetensors"), load_file(back / "model.safetensors")
    assert {n: a.tobytes() for n, a in before.items()} == {n: a.tobytes() for n, a in after.items()}
    config = json.loads((back / "config.json").read_text())
    assert config["model_type"] == json.loads((hf / "config.json").read_text())["model_type"]
    assert read_config(back) == read_config(hf)
    from transformers import AutoModelForCausalLM

    again = AutoModelForCausalLM.from_pretrained(str(back), dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.tensor(tokens(1, LENGTH), dtype=torch.long)
    with torch.no_grad():
        assert torch.equal(again(ids).logits, torch_model(name)(ids).logits)
