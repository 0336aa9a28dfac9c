"""One model over 1, 2 or 4 devices of a process: the same tokens, whatever happens to a request.

A process has as many devices as it started with, so everything runs in one of its own, which writes down what it got.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute.devices import Devices, check_split
from lemur_ray.serve.config import EngineOptions
from tests.serve.tiny import TINY

pytestmark = pytest.mark.slow

MODELS = {
    "MHA": {"num_heads": 4, "num_kv_heads": 4},
    "GQA": {"num_heads": 8, "num_kv_heads": 4, "head_dim": 8, "tie_embeddings": True},
}
PARTS = {"MHA": (1, 4), "GQA": (1, 2)}
SEVERAL = [(model, str(n)) for model, parts in PARTS.items() for n in parts[1:]]

RUN = """
import dataclasses, json, sys
import jax, numpy as np
from lemur_ray.weights.open_model import random_weights
from lemur_ray.serve.compute.attention import block_bytes
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.loading import open_engine
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import LogitBias, SamplingOptions
from tests.serve.offline import generate
from tests.serve.tiny import TINY, Waiter, prompts

def run(config, parts, **options):
    options = EngineOptions(**{"max_slots": 8, "prefill_tiles": 2, "tensor_parallel": parts, **options})
    engine, out = open_engine(random_weights(config, 0), options).start(), {}
    asked = [
        Generation(p, 40, SamplingOptions(i, float(i % 2), 0.9, logit_bias=LogitBias(((9, float(i % 4)),))))
        for i, p in enumerate(prompts(10, seed=1, high=120))
    ]
    out["alone"] = [generate(engine, [request])[0] for request in asked]
    out["together"] = generate(engine, asked)
    again = Waiter(engine, Generation((*asked[4].prompt, *out["alone"][4], 7, 8, 9), 20))
    out["cached"], out["next turn"] = again.end().cached, again.tokens
    scored = Waiter(engine, Generation(asked[2].prompt, 5, logprobs=True, prompt_logprobs=True))
    event = scored.next()
    out["scores"] = np.nan_to_num(event.prompt_logprobs.logprob).tolist() if event.prompt_logprobs else None
    while event.finish is None:
        event = scored.next()
    engine.update(random_weights(config, 1), "second").result(timeout=60)
    out["other weights"] = generate(engine, asked)
    out["invariant"], out["recompiles"] = engine.stats.batch_invariant, engine.stats.recompiles_after_warmup
    programs = engine._batch.programs.programs
    held = programs._cache[0].k.addressable_shards[0].data, jax.tree.leaves(programs._weights.layers[0].wqkv)[0]
    out["kv heads of a device"] = held[0].shape[1]
    out["part of a matrix"] = held[1].addressable_shards[0].data.size / held[1].size
    engine.close()
    if options.dtype != "float32" or options.quantization != "none":
        return out
    tight = open_engine(random_weights(config, 0), dataclasses.replace(options, cache_bytes=5 * block_bytes(config)))
    tight.start()
    out["tight"] = generate(tight, [Generation(p, 200 - len(p)) for p in prompts(6, seed=62, low=100, high=120)])
    out["preemptions"] = tight.stats.preemptions
    tight.close()
    return out

models, parts, options = (json.loads(argument) for argument in sys.argv[1:])
models = {name: dataclasses.replace(TINY, **fields) for name, fields in models.items()}
found = {name: {n: run(models[name], n, **options) for n in parts[name]} for name in models}
print(json.dumps(found))
"""

Replies = dict[str, dict[str, dict[str, Any]]]
"""What an engine answered, by model, number of devices and kind of request."""


def replies_on_devices(models: dict[str, dict[str, Any]], **options: Any) -> Replies:
    """Replies of engines with these options, in a process with 8 fake devices."""
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    command = [sys.executable, "-c", RUN, json.dumps(models), json.dumps(PARTS), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    replies: Replies = json.loads(done.stdout.splitlines()[-1])
    return replies


@pytest.fixture(scope="module")
def found() -> Replies:
    return replies_on_devices(MODELS)


@pytest.mark.parametrize(("model", "parts"), SEVERAL)
@pytest.mark.parametrize("what", ["alone", "together", "next turn", "other weights", "tight"])
def test_the_tokens_are_those_of_one_device(found: dict, model: str, parts: str, what: str) -> None:
    assert found[model][parts][what] == found[model]["1"][what]
    assert found[model][parts]["alone"] == found[model][parts]["together"]


@pytest.mark.parametrize("model", MODELS)
def test_what_was_compared_is_what_it_is_called(found: dict, model: str) -> None:
    for parts in found[model].values():
        assert parts["cached"] > 0
        assert parts["preemptions"] > 0
        assert parts["other weights"] != parts["alone"]


@pytest.mark.parametrize("model", MODELS)
def test_the_probe_speaks_for_several_devices_as_for_one(found: dict, model: str) -> None:
    """Kernels differ from machine to machine: what one device does exactly, several do; else steps are padded."""
    assert len({parts["invariant"] for parts in found[model].values()}) == 1


@pytest.mark.parametrize(("model", "parts"), SEVERAL)
def test_scores_are_those_of_one_device_but_for_rounding(found: dict, model: str, parts: str) -> None:
    np.testing.assert_allclose(found[model][parts]["scores"], found[model]["1"]["scores"], rtol=0, atol=1e-5)


def test_nothing_is_compiled_after_the_start(found: dict) -> None:
    assert {parts["recompiles"] for model in found.values() for parts in model.values()} == {0}


@pytest.mark.parametrize("model", MODELS)
def test_each_device_holds_its_part_alone(found: dict, model: str) -> None:
    assert [parts["kv heads of a device"] for parts in found[model].values()] == [4 / n for n in PARTS[model]]
    assert [parts["part of a matrix"] for parts in found[model].values()] == [1 / n for n in PARTS[model]]


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.sweep)])
def test_smaller_numbers_are_shared_too(dtype: str) -> None:
    one, four = replies_on_devices({"MHA": MODELS["MHA"]}, dtype=dtype, quantization="int8")["MHA"].values()
    assert one["alone"] == four["alone"]
    assert one["scores"] == four["scores"]


@pytest.mark.parametrize(
    ("config", "parts", "message"),
    [
        (
            TINY,
            3,
            "num_heads 4, ffn_dim 96 and dim 64, and divide num_kv_heads 2 or be a multiple of it: use 1, 2 or 4",
        ),
        (TINY, 8, "tensor_parallel 8 does not fit this model.*use 1, 2 or 4"),
        (replace(TINY, num_heads=6, num_kv_heads=3, dim=96), 2, "num_kv_heads 3.*use 1, 3 or 6"),
    ],
)
def test_a_model_that_does_not_divide_is_refused(config: ModelConfig, parts: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_split(config, parts)


def test_more_devices_than_there_are_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tensor_parallel is 64, but there are \d+ cpu device"):
        Devices.take(64)
    with pytest.raises(ValueError, match="tensor_parallel"):
        EngineOptions(tensor_parallel=-2)  # -1: as many as the model and the machine allow
