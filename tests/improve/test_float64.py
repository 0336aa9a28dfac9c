"""Server and learner in float64, with random models whose logits magnify the rounding of float32."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from lemur_ray.improve.learner import Programs
from lemur_ray.improve.prepare import prepare
from lemur_ray.model.llama import init_params
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from tests.improve.capital_game import MODEL, SEQ_LEN, config_of
from tests.improve.in_process import InProcess
from tests.serve.engine.test_token_logprobs import scored
from tests.serve.tiny import prompts


def magnified(seed: int) -> Any:
    """Random parameters with four times the usual matrices and ten times the usual head."""
    params = init_params(MODEL, seed)
    layers = {name: w * 4 if w.ndim == 3 else w for name, w in params["layers"].items()}
    return {**params, "layers": layers, "head": params["head"] * 10}


def largest_difference(engine: Engine, programs: Programs, params: Any) -> float:
    """Largest difference of the log-probabilities of prompts and drawn texts between a server and a learner."""
    largest = []
    for number, prompt in enumerate(prompts(8, seed=1, low=2, high=100)):
        drawn, own, of_prompt = scored(engine, prompt, SEQ_LEN - 100, temperature=1.0, seed=number)
        ids = np.zeros((1, SEQ_LEN + 1), np.int32)
        ids[0, : len(prompt) + len(drawn)] = *prompt, *drawn
        ones, positions = np.ones((1, SEQ_LEN), np.int32), np.arange(SEQ_LEN, dtype=np.int32)[None]
        batch = {"tokens": ids[:, :-1], "targets": ids[:, 1:], "segment_ids": ones, "positions": positions}
        logprobs = programs.logprobs(params, {**batch, "loss_weights": ones.astype(np.float32)})[0]
        served = np.concatenate([of_prompt.logprob[1:], own.logprob])
        largest.append(np.abs(served - logprobs[: len(served)]).max())
        assert logprobs.dtype == served.dtype == np.float32
    return float(max(largest))


@pytest.mark.slow
def test_server_and_learner_agree_in_float64(start: Path, tmp_path: Path) -> None:
    prepared = prepare(config_of(start, tmp_path / "run", float64=True))
    prepared.open_folder()
    with InProcess(prepared.learner, EngineOptions(max_slots=2, cache_bytes=2**24, prefill_tiles=1)) as backend:
        backend.open()
        learner = backend._learner
        for seed in range(3):
            learner._state = dataclasses.replace(learner._state, params=magnified(seed))
            engine = backend.serve(learner._commit(1 + seed, {})).policy().engine.engine
            assert largest_difference(engine, learner._programs, learner._state.params) <= 1e-5
        rounded = Programs(prepared.learner.recipe, learner._mesh)
        assert largest_difference(engine, rounded, learner._state.params) > 1e-5, "one side in float32 is not noticed"
    assert jax.numpy.zeros(1).dtype == "float32", "the number format of the process has changed"


def test_float64_is_part_of_a_run_and_for_weights_that_are_not_rounded(start: Path, tmp_path: Path) -> None:
    config = config_of(start, tmp_path / "run")
    usual, wide = (prepare(dataclasses.replace(config, float64=wide)).learner for wide in (False, True))
    assert ("float64" in usual.described["improve"], wide.described["improve"]["float64"]) == (False, True)
    assert (usual.float64, wide.float64) == (False, True)
    for given in ({"dtype": "bfloat16"}, {"quantization": "int8"}):
        with pytest.raises(ValueError, match="expected float32 and none"):
            EngineOptions(float64=True, **given)  # type: ignore[arg-type]
