"""What a token takes of the host where steps draw tokens themselves: programs, waits and arrays; and the same tokens.

Two simulated devices take every way of an accelerator but its kernel: stacked layers, ordered sums, cut logits, steps
that start from tokens that have not arrived. They run in one process of its own.
"""

from typing import Any

import pytest

from tests.fake_devices import results_of

pytestmark = pytest.mark.slow

RUN = """
import json, sys
from collections import Counter
import jax, numpy as np
from lemur_ray.serve.compute import on_devices, programs
from lemur_ray.serve.compute.attention import block_bytes
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import LogitBias, SamplingOptions
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.open_model import random_weights
from tests.serve.offline import generate
from tests.serve.tiny import TINY, Waiter, prompts, slowed

counts, sent, steps = Counter(), [0], []
plain_program, plain_ids = programs.Programs._program, on_devices.DrawnStep.next_tokens

def program(self, *key):
    compiled = plain_program(self, *key)
    def call(*arguments):
        counts["programs"] += 1
        counts["arrays"] += sum(isinstance(x, np.ndarray) for x in jax.tree.leaves(arguments))
        sent[0] += key[0] == "forward"
        return compiled(*arguments)
    return call

def next_tokens(self, rows):
    outstanding = sent[0] - getattr(self, "number", sent[0])
    counts["waits"] += not outstanding  # the devices have nothing to do meanwhile
    ids = plain_ids(self, rows)
    steps.append((len(rows), dict(counts)))
    counts.clear()
    return ids

plain_init = on_devices.StepOnDevices.__init__
def init(self, *arguments):
    plain_init(self, *arguments)
    self.number = sent[0]

def requests(new=24, number=6):
    def options(i):
        return SamplingOptions(i, float(i % 2), (0.9, 1.0)[i % 3 == 0], (0, 3)[i % 4 == 3], 0.02 * (i % 5 == 4))
    settings = map(options, range(number))
    return [Generation(p, new - i % 3, s) for i, (p, s) in enumerate(zip(prompts(number, seed=1, high=60), settings))]

def edited():
    biased = SamplingOptions(3, 1.0, logit_bias=LogitBias(((9, 3.0), (200, -100.0))), frequency_penalty=0.3)
    every = SamplingOptions(4, 1.0, logit_bias=LogitBias(tuple((i, float(i % 3)) for i in range(TINY.vocab_size))))
    return [Generation((5, 6, 7), 12, biased), Generation((8, 9), 12, every), *requests(12, 2)]

def swapped(engine):
    "Kind of swap -> (rows in flight when the weights changed, versions of replies, whether they are as they should be)"
    out = {}
    for seed, kind in enumerate(("recompute", "keep", "drain"), 1):
        asked, in_flight, version, settle = requests(60), [], engine.version, engine._batch.settle
        old = generate(engine, asked)
        engine._batch.settle = lambda: in_flight.extend(drawn := settle()) or drawn
        begun = [Waiter(engine, request) for request in asked]
        with slowed(engine, 0.02):
            assert not any(waiter.next().finish for waiter in begun)
            engine.update(random_weights(TINY, seed), str(seed), kind).result(timeout=60)
        engine._batch.settle = settle
        right, versions = [], set()
        for request, waiter, before in zip(asked, begun, old):
            parts = {version: []} | waiter.by_version()
            versions.add(" ".join(parts))
            if kind == "keep":
                right.append(len(waiter.tokens) == len(before))
                continue
            split = len(waiter.tokens) - len([*parts.values()][-1]) * (kind == "recompute")
            again = Generation((*request.prompt, *before[:split]), len(before) - split, request.sampling)
            after = generate(engine, [again])[0] if split < len(before) else []
            right.append(waiter.tokens == before[:split] + after)
        out[kind] = [len(in_flight), sorted(versions), all(right)]
    return out

def answers(parts):
    options = EngineOptions(
        max_slots=6, prefill_tiles=1, tensor_parallel=parts, native=False, cache_bytes=7 * block_bytes(TINY)
    )
    engine, out = open_engine(random_weights(TINY, 0), options).start(), {}
    out["alone"] = [generate(engine, [request])[0] for request in requests()]
    counts.clear(), steps.clear()
    out["together"] = generate(engine, requests())
    out["steps"] = list(steps)
    out["edited"] = generate(engine, edited())
    stop = frozenset({out["alone"][1][5]})
    out["stopped"] = generate(engine, [Generation(r.prompt, 24, r.sampling, stop) for r in requests()])
    scored = Waiter(engine, Generation((3, 4, 5), 6, logprobs=True, prompt_logprobs=True))
    event = scored.next()
    out["prompt logprobs"] = np.nan_to_num(event.prompt_logprobs.logprob).tolist()
    while event.finish is None:
        event = scored.next()
    out["scored"] = scored.tokens
    cancelled, others = Waiter(engine, Generation((1, 2), 200)), [Waiter(engine, r) for r in requests(40)]
    cancelled.next()
    engine.cancel(cancelled.number)
    late = [Waiter(engine, r) for r in requests(40)]
    out["others"] = [waiter.end() and waiter.tokens for waiter in others + late]
    (long,) = prompts(1, seed=5, low=100, high=120)
    generate(engine, [Generation(long, 9)])
    out["again"] = Waiter(engine, Generation((*long, 7), 9)).end().cached > 0
    before = engine.stats.preemptions
    out["tight"] = generate(engine, [Generation(p, 200 - len(p)) for p in prompts(4, seed=62, low=100, high=120)])
    out["preemptions"] = engine.stats.preemptions - before
    out["recompiles"], out["running"] = engine.stats.recompiles_after_warmup, len(engine._batch.scheduler.running)
    out["swapped"] = swapped(engine)
    out["of new weights"] = generate(engine, requests())
    engine.close()
    return out

programs.MAX_SECOND_COPY_BYTES = 0
found = {"cpu": answers(1)}
jax.default_backend = lambda: "tpu"
programs.Programs._program, on_devices.StepOnDevices.__init__ = program, init
on_devices.DrawnStep.next_tokens = next_tokens
found["tpu"] = answers(2)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    return results_of(RUN, 2)


def test_a_token_takes_one_program_one_array_and_no_wait(found: dict) -> None:
    """While six sequences decode; the first tokens of prompts are waited for."""
    steady = [counts for rows, counts in found["tpu"]["steps"] if rows == 6]
    assert len(steady) > 10
    ahead = [counts for counts in steady if counts == {"programs": 1, "arrays": 1, "waits": 0}]
    assert len(ahead) >= len(steady) - 3, found["tpu"]["steps"]


@pytest.mark.parametrize(
    "what", ["alone", "together", "edited", "stopped", "scored", "others", "tight", "of new weights"]
)
def test_tokens_are_those_of_one_cpu(found: dict, what: str) -> None:
    assert found["tpu"][what] == found["cpu"][what]


def test_log_probabilities_of_cut_logits_are_those_of_whole_ones(found: dict) -> None:
    assert found["tpu"]["prompt logprobs"] == pytest.approx(found["cpu"]["prompt logprobs"], abs=1e-5)


@pytest.mark.parametrize(("kind", "versions"), [("recompute", " +1"), ("keep", "1 1+2-kept"), ("drain", "2")])
def test_weights_change_under_a_step_in_flight_and_its_tokens_count(found: dict, kind: str, versions: str) -> None:
    """Tokens that a step drew with the old weights are the replies'; what comes after is as without steps ahead."""
    in_flight, named, is_right = found["tpu"]["swapped"][kind]
    assert in_flight == (6 if kind != "drain" else 0)
    assert named == [versions]
    assert is_right
    assert found["cpu"]["swapped"][kind] == [0, [versions], True]


def test_steps_that_run_ahead_leave_nothing_behind(found: dict) -> None:
    for engine in found.values():
        assert (engine["recompiles"], engine["again"]) == (0, True)
        assert engine["preemptions"] > 0
        assert engine["running"] == 0
