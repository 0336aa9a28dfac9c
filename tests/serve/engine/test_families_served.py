"""Greedy tokens of the engine against transformers for every supported family, with a cold and a warm prefix cache."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.hf_tensors import HuggingFaceWeights
from lemur_ray.weights.open_model import random_weights
from tests.serve.offline import generate
from tests.serve.tiny import Waiter
from tests.weights.torch_models import FAMILIES, VOCAB, saved, torch_model


def prompts(num: int, most: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(num)
    return [tuple(rng.integers(0, VOCAB, rng.integers(3, most)).tolist()) for _ in range(num)]


def assert_as_transformers(engine: Engine, name: str, asked: list[tuple[int, ...]], num_tokens: int) -> None:
    """Each reply's tokens are the likeliest after all tokens before them, so that they are those of greedy decoding."""
    requests = [Generation(prompt, num_tokens) for prompt in asked]
    cold = generate(engine, requests)
    assert Waiter(engine, requests[0]).end().cached > 0
    assert generate(engine, requests) == cold
    rows = np.zeros((len(asked), max(map(len, asked)) + num_tokens), np.int64)
    for row, prompt, reply in zip(rows, asked, cold, strict=True):
        row[: len(prompt) + num_tokens] = [*prompt, *reply]
    with torch.no_grad():
        likeliest = torch_model(name)(torch.tensor(rows)).logits.argmax(-1).numpy()
    for row, prompt, reply in zip(likeliest, asked, cold, strict=True):
        assert row[len(prompt) - 1 :][:num_tokens].tolist() == reply


def engine_of(name: str, folder: Path, **options: object) -> Engine:
    """An engine that starts with random weights of the family's shape."""
    config = HuggingFaceWeights(saved(name, folder)).config
    options = {"max_slots": 8, "prefill_tiles": 2, "context": 320, **options}
    return open_engine(random_weights(config, 7), EngineOptions(**options)).start()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["qwen2", "gemma 3"])
def test_replies_after_a_live_swap_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    engine = engine_of(name, tmp_path, max_slots=2, prefill_tiles=1)
    try:
        engine.update(HuggingFaceWeights(tmp_path), "imported").result(timeout=60)
        assert_as_transformers(engine, name, prompts(2, 60), 12)
    finally:
        engine.close()


IN_SLOW = {"qwen2", "mistral, windows", "gemma 3"}
"""Families of the slow tests, served by the native kernels; all, and by XLA, in the sweep."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "native"),
    [
        pytest.param(name, native, marks=[pytest.mark.sweep] * (not native or name not in IN_SLOW))
        for name in FAMILIES
        for native in (True, False)
    ],
)
def test_two_hundred_tokens_of_twenty_prompts_are_those_of_transformers(
    name: str, native: bool, tmp_path: Path
) -> None:
    engine = engine_of(name, tmp_path, native=native)
    try:
        engine.update(HuggingFaceWeights(tmp_path), "imported").result(timeout=60)
        assert_as_transformers(engine, name, prompts(20, 100), 200)
    finally:
        engine.close()


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_int8_and_bfloat16_stay_near_float32(name: str, tmp_path: Path) -> None:
    prompt = prompts(1, 200)[0]
    scores = []
    for options in ({}, {"dtype": "bfloat16"}, {"quantization": "int8"}):
        engine = engine_of(name, tmp_path, max_slots=2, prefill_tiles=1, **options)
        try:
            event = Waiter(engine, Generation(prompt, 0, prompt_logprobs=True)).end()
        finally:
            engine.close()
        assert event.prompt_logprobs is not None
        scores.append(event.prompt_logprobs.logprob[1:])
    assert np.abs(scores[1] - scores[0]).mean() < 0.02
    assert np.abs(scores[2] - scores[0]).mean() < 0.1
