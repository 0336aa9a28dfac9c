"""Weights of eight bits: how far off a product may be, the same tokens at any load, and a name of their own."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.quantized import quantize, quantized_product
from lemur_ray.serve.compute.weights import prepare
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.loading import open_engine, served_version
from lemur_ray.weights.open_model import random_weights
from tests.serve.engine.test_engine import mixed_requests
from tests.serve.offline import generate
from tests.serve.tiny import TINY, Waiter, prompts

Make = Callable[..., Engine]


def test_a_product_is_off_by_no_more_than_the_rounding_of_its_factors() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 96)).astype(np.float32), rng.standard_normal((96, 33)).astype(np.float32)
    x[3], w[:, 4] = 0, 0
    got = np.asarray(quantized_product(jnp.asarray(x), quantize(w)))
    step_x, step_w = np.abs(x).max(1, keepdims=True) / 127, np.abs(w).max(0) / 127
    bound = 0.5 * (step_x * np.abs(w).sum(0) + step_w * np.abs(x).sum(1, keepdims=True)) + 96 * step_x * step_w / 4
    assert (np.abs(got - x @ w) <= bound + 1e-5).all()
    assert not got[3].any()
    assert not got[:, 4].any()
    assert np.abs(got - x @ w).max() > 1e-4, "nothing was rounded"


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_what_is_no_number_stays_none(broken: float) -> None:
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((3, 16)).astype(np.float32), rng.standard_normal((16, 5)).astype(np.float32)
    whole = np.asarray(quantized_product(jnp.asarray(x), quantize(w)))
    w[7, 2], x[1, 4] = broken, broken
    got = np.asarray(quantized_product(jnp.asarray(x), quantize(w)))
    assert not np.isfinite(got[1]).any()
    assert not np.isfinite(got[:, 2]).any()
    assert np.array_equal(np.delete(got, 1, 0)[:, [0, 1, 3, 4]], np.delete(whole, 1, 0)[:, [0, 1, 3, 4]])


@pytest.mark.parametrize("others", [0, 1, 6, 31, 99])
def test_a_row_gets_the_same_bits_in_any_company(others: int) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((1, 256)).astype(np.float32), quantize(rng.standard_normal((256, 64)))
    company = np.concatenate([x, 100 * rng.standard_normal((others, 256)).astype(np.float32)])
    alone = np.asarray(quantized_product(jnp.asarray(x), w))[0]
    assert np.array_equal(np.asarray(quantized_product(jnp.asarray(company), w))[0], alone)


def test_matrices_take_a_quarter_of_their_memory_and_embeddings_stay() -> None:
    source = random_weights(TINY, 0)
    plain, rounded = prepare(source), prepare(source, form="int8")
    assert rounded.embed.dtype == jnp.float32
    for name in ("wqkv", "wo", "gate_up", "down"):
        matrix, eight = getattr(plain.layers[0], name), getattr(rounded.layers[0], name)
        assert eight.values.nbytes * 4 == matrix.nbytes
        assert eight.values.shape == matrix.shape[::-1]


@pytest.mark.slow
def test_tokens_do_not_depend_on_load_cache_or_slot(small_engine: Make) -> None:
    engine = small_engine(max_slots=24, max_queue=99, prefill_tiles=4, quantization="int8")
    assert engine.stats.batch_invariant
    requests = mixed_requests(40, seed=3)
    together = generate(engine, requests)
    assert [generate(engine, [request])[0] for request in requests[:7]] == together[:7]
    assert engine.stats.recompiles_after_warmup == 0


@pytest.mark.slow
def test_most_choices_are_those_of_the_unrounded_model_and_new_weights_are_rounded_too(
    small_engine: Make, engine: Engine
) -> None:
    rounded = small_engine(max_slots=8, quantization="int8")
    requests = [Generation(prompt, 1) for prompt in prompts(8, seed=4, low=20)]
    same = sum(a == b for a, b in zip(generate(rounded, requests), generate(engine, requests), strict=True))
    assert same >= 6
    fresh = open_engine(random_weights(TINY, 5), rounded.options).start()
    rounded.update(random_weights(TINY, 5), "later").result(60)
    long = [Generation(prompt, 30) for prompt in prompts(4, seed=4, low=20)]
    assert generate(rounded, long) == generate(fresh, long)
    assert Waiter(rounded, long[0]).end().version == "later"
    fresh.close()


@pytest.mark.slow
def test_a_tied_model_is_served_with_eight_bits(small_engine: Make) -> None:
    config = ModelConfig(**{**vars(TINY), "tie_embeddings": True})
    engine = open_engine(random_weights(config, 0), EngineOptions(max_slots=2, quantization="int8")).start()
    assert len(generate(engine, [Generation((9, 8, 7), 5)])[0]) == 5
    engine.close()


def test_rounded_weights_have_a_version_of_their_own() -> None:
    assert served_version("7-ab", EngineOptions()) == "7-ab"
    assert served_version("7-ab", EngineOptions(dtype="bfloat16")) == "7-ab-bfloat16"
    assert served_version("7-ab", EngineOptions(dtype="bfloat16", quantization="int8")) == "7-ab-int8"
