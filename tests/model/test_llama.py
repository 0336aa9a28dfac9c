"""The model against transformers, packing, parameter counts."""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.config import ModelConfig, RopeScaling
from lemur_ray.model.llama import (
    Forward,
    abstract_params,
    hidden_states,
    init_params,
    logical_axes,
    num_params,
    stack_layers,
    unstack_layers,
)
from lemur_ray.recipes import get_recipe
from tests.model.logits import logits
from tests.model.tiny_batches import packed_batch
from tests.weights.whole_models import write_model

BASE = ModelConfig(
    vocab_size=96, num_layers=2, dim=32, ffn_dim=48, num_heads=4, num_kv_heads=4, head_dim=8, max_seq_len=64
)
PACKED = ["chunked", "skipping"]
RUN = jax.jit(hidden_states, static_argnames=("config", "how"))
SHAPES = {
    "multi-head": BASE,
    "grouped-query": dataclasses.replace(BASE, num_kv_heads=2),
    "one key head": dataclasses.replace(BASE, num_kv_heads=1),
    "tied": dataclasses.replace(BASE, tie_embeddings=True),
    "other head size": dataclasses.replace(BASE, head_dim=16, rope_theta=1e6),
    # Positions reach 64 here: beyond what these had in pretraining, and over all three ranges of llama3.
    "rope linear": dataclasses.replace(BASE, max_seq_len=80, rope_scaling=RopeScaling("linear", 4.0)),
    "rope llama3": dataclasses.replace(
        BASE, head_dim=16, max_seq_len=80, rope_theta=5e2, rope_scaling=RopeScaling("llama3", 8.0, 1.0, 4.0, 24)
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    import torch
    from transformers import LlamaForCausalLM

    config = SHAPES[name]
    params = init_params(config, 1)
    write_model(params, config, None, tmp_path)
    theirs = LlamaForCausalLM.from_pretrained(str(tmp_path), dtype=torch.float32).eval()
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, 64))
    with torch.no_grad():
        expected = theirs(torch.tensor(tokens)).logits.numpy()
    positions = np.broadcast_to(np.arange(64), (2, 64))
    given = (jnp.asarray(tokens), jnp.ones((2, 64), jnp.int32), jnp.asarray(positions))
    assert np.abs(np.asarray(logits(params, config, *given)) - expected).max() < 1e-4
    if config.rope_scaling != RopeScaling():
        unscaled = logits(params, dataclasses.replace(config, rope_scaling=RopeScaling()), *given)
        assert np.abs(np.asarray(unscaled) - expected).max() > 1e-2


@pytest.mark.parametrize("attention", PACKED)
def test_a_packed_document_has_the_logits_it_has_alone(attention: str) -> None:
    config = dataclasses.replace(BASE, num_kv_heads=2)
    params = init_params(config, 2)
    lengths = [24, 40]
    batch = packed_batch([lengths], config.vocab_size, length=64)
    packed = RUN(
        params, config, batch["tokens"], batch["segment_ids"], batch["positions"], Forward(attention=attention)
    )
    at = 0
    for size in lengths:
        part = slice(at, at + size)
        tokens, ones = batch["tokens"][:, part], jnp.ones((1, size), jnp.int32)
        alone = RUN(params, config, tokens, ones, jnp.arange(size)[None], Forward(attention=attention))
        assert jnp.abs(packed[:, part] - alone).max() < 1e-5
        at += size


@pytest.mark.parametrize("attention", PACKED)
def test_no_gradient_crosses_the_boundary_of_a_document(attention: str) -> None:
    params = init_params(BASE, 3)
    batch = packed_batch([[20, 44]], BASE.vocab_size, length=64)

    def second_document(embedded: jax.Array) -> jax.Array:
        given = {**params, "embed": embedded}
        tokens = jnp.arange(64)[None]
        x = RUN(given, BASE, tokens, batch["segment_ids"], batch["positions"], Forward(attention=attention))
        return jnp.sum(x[:, 20:] ** 2)

    # Every position has an embedding of its own, so its gradient shows who looked at it.
    gradient = jax.grad(second_document)(jax.random.normal(jax.random.key(0), (64, BASE.dim)))
    assert jnp.all(gradient[:20] == 0)
    assert jnp.all(jnp.any(gradient[20:] != 0, axis=-1))


@pytest.mark.slow
def test_the_packed_gradient_is_the_sum_of_the_gradients_of_the_documents() -> None:
    from lemur_ray.model.loss import cross_entropy

    params = init_params(BASE, 4)
    batch = packed_batch([[20, 31]], BASE.vocab_size, length=64)

    def loss(params: dict, begin: int, end: int) -> jax.Array:  # type: ignore[type-arg]
        cut = {
            name: batch[name][:, begin:end]
            for name in ("tokens", "segment_ids", "positions", "targets", "loss_weights")
        }
        x = hidden_states(params, BASE, cut["tokens"], cut["segment_ids"], cut["positions"], Forward(attention="plain"))
        return cross_entropy(x, params["head"], cut["targets"], cut["loss_weights"]).total

    gradient = jax.jit(jax.grad(loss), static_argnums=(1, 2))
    packed = gradient(params, 0, 64)
    alone = jax.tree.map(jnp.add, gradient(params, 0, 20), gradient(params, 20, 51))
    scale = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(packed))
    for a, b in zip(jax.tree.leaves(packed), jax.tree.leaves(alone), strict=True):
        assert jnp.abs(a - b).max() / scale < 1e-5


def test_unrolled_layers_give_what_scanned_layers_give() -> None:
    params = init_params(BASE, 5)
    batch = packed_batch([[40, 20]], BASE.vocab_size, length=64)
    given = (batch["tokens"], batch["segment_ids"], batch["positions"])
    scanned = RUN(params, BASE, *given)
    unrolled = RUN(unstack_layers(params), BASE, *given)
    assert jnp.abs(scanned - unrolled).max() < 1e-5
    back = stack_layers(unstack_layers(params))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), params, back))


@pytest.mark.parametrize(
    "remat",
    ["full", "offload", *(pytest.param(x, marks=pytest.mark.slow) for x in ("save_dots", "save:query+offload:gate"))],
)
def test_recomputation_changes_no_gradient(remat: str) -> None:
    for a, b in zip(gradient_of_energy("none"), gradient_of_energy(remat), strict=True):
        assert jnp.abs(a - b).max() <= 1e-4 * max(1.0, float(jnp.abs(a).max()))


@functools.cache
def gradient_of_energy(remat: str) -> list[jax.Array]:
    batch = packed_batch([[40, 20]], BASE.vocab_size, length=64)

    def energy(params: dict) -> jax.Array:  # type: ignore[type-arg]
        given = (batch["tokens"], batch["segment_ids"], batch["positions"])
        return jnp.sum(hidden_states(params, BASE, *given, Forward(remat=remat)) ** 2)  # type: ignore[arg-type]

    return jax.tree.leaves(jax.jit(jax.grad(energy))(init_params(BASE, 6)))


def test_the_llama_table_has_its_published_parameter_counts() -> None:
    tests_nano = ModelConfig(
        vocab_size=32_000, num_layers=4, dim=256, ffn_dim=704, num_heads=8, num_kv_heads=2, head_dim=32
    )
    assert num_params(tests_nano) == 19_204_352
    counts = {
        "llama2-7b": 6_738_415_616,
        "llama2-13b": 13_015_864_320,
        "llama2-34b": 33_743_970_304,
        "llama2-70b": 68_976_648_192,
    }
    for name, count in counts.items():
        config = get_recipe(name).model
        assert num_params(config) == count, name
        assert config.num_params == count, name


def test_every_leaf_has_one_logical_axis_per_dimension() -> None:
    shapes, axes = abstract_params(BASE), logical_axes(BASE)
    flat = jax.tree.leaves(axes, is_leaf=lambda leaf: isinstance(leaf, tuple))
    assert [len(names) for names in flat] == [len(leaf.shape) for leaf in jax.tree.leaves(shapes)]
    assert axes["layers"]["wq"] == ("layers", "dim", "heads")


def test_the_same_seed_gives_the_same_parameters() -> None:
    first, second, other = init_params(BASE, 7), init_params(BASE, 7), init_params(BASE, 8)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), first, second))
    assert not bool((first["head"] == other["head"]).all())
    assert abs(float(first["layers"]["wq"].std()) - BASE.dim**-0.5) < 0.02


def test_bfloat16_activations_stay_near_float32() -> None:
    params = init_params(BASE, 9)
    batch = packed_batch([[60]], BASE.vocab_size, length=64)
    given = (batch["tokens"], batch["segment_ids"], batch["positions"])
    exact = logits(params, BASE, *given)
    rounded = logits(params, BASE, *given, compute_dtype=jnp.bfloat16)
    assert rounded.dtype == jnp.float32
    assert jnp.abs(exact - rounded).max() < 0.05


@pytest.mark.parametrize(("field", "value", "says"), [("num_kv_heads", 3, "does not divide"), ("head_dim", 7, "odd")])
def test_an_impossible_shape_is_refused(field: str, value: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        abstract_params(dataclasses.replace(BASE, **{field: value}))  # type: ignore[arg-type]
