"""Biases, penalties, log-probabilities and constraints where steps draw tokens themselves: the results of a CPU.

Two simulated devices share the logits, in one process of its own.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from lemur_ray.serve.compute.drawing.row_options import slot_changes
from lemur_ray.serve.compute.drawing.slot_edits import (
    CHANGES,
    RowEdits,
    edit_rows,
    empty_row_edits,
    empty_slots,
    write_slot,
)
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.sampling_options import LogitBias, SamplingOptions
from tests.fake_devices import results_of

RUN = """
import json, random
from collections import Counter
import jax, numpy as np
from lemur_ray.serve.compute import on_devices, programs
from lemur_ray.serve.compute.attention import block_bytes
from lemur_ray.serve.compute.devices import Devices
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import LogitBias, SamplingOptions
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.open_model import random_weights
from tests.serve.offline import generate
from tests.serve.tiny import TINY, Waiter, prompts, slowed

class Constraint:
    "Tokens of one parity after the other; fails once it accepted ``fails_at`` tokens."
    def __init__(self, fails_at=-1):
        self.length, self.fails_at = 0, fails_at
    def allowed(self):
        if self.length == self.fails_at:
            raise ValueError("planted")
        return np.full(8, (0x55555555, 0xAAAAAAAA)[self.length % 2], np.uint32)
    def accept(self, token):
        assert token % 2 == self.length % 2
        self.length += 1

counts, steps = Counter(), []
plain_program, plain_ids = programs.Programs._program, on_devices.DrawnStep.next_tokens

def program(self, *key):
    compiled = plain_program(self, *key)
    def call(*arguments):
        counts[key[0]] += 1
        counts["arrays"] += sum(isinstance(x, np.ndarray) for x in jax.tree.leaves(arguments))
        if key[0] == "forward":
            self.number = getattr(self, "number", 0) + 1
        return compiled(*arguments)
    return call

plain_init = on_devices.DrawnStep.__init__
def init(self, *arguments):
    plain_init(self, *arguments)
    self.number = self._programs.number

def next_tokens(self, rows):
    counts["waits"] += self.number == self._programs.number  # nothing was sent since
    ids = plain_ids(self, rows)
    steps.append((len(rows), dict(counts)))
    counts.clear()
    return ids

def options(i):
    every = tuple((token, float(token % 3)) for token in range(TINY.vocab_size))
    return [SamplingOptions(i, 1.0, 0.9, logit_bias=LogitBias(((9, 3.0), (200, -100.0))), frequency_penalty=0.3),
            SamplingOptions(i, logit_bias=LogitBias(every), presence_penalty=1.5),
            SamplingOptions(i, 0.8, presence_penalty=2.0, frequency_penalty=1.0),
            SamplingOptions(i, float(i % 2)), SamplingOptions(i, 1.0, frequency_penalty=-0.5)][i % 5]

def requests(number, new, low=2, high=60, **more):
    asked = enumerate(prompts(number, seed=number, low=low, high=high))
    return [Generation(p, new(i), options(i), logprobs=i % 3 == 0, **more) for i, p in asked]

def scored(engine):
    "Tokens and log-probabilities of replies side by side, one of them constrained."
    asked = requests(6, lambda i: 20 - i)
    asked.append(Generation((4, 5), 15, options(2), constraint=Constraint(), logprobs=True))
    waiters, tokens, logprobs = [Waiter(engine, one) for one in asked], [], []
    for one, waiter in zip(asked, waiters):
        event, own = waiter.next(), []
        while True:
            own += [] if event.logprobs is None else event.logprobs.logprob.tolist()
            if event.finish:
                break
            event = waiter.next()
        tokens.append(waiter.tokens)
        logprobs.append(own)
    return tokens, logprobs

def at_once(engine, asked, swap=""):
    "Replies to requests that all arrive within the first steps, in which weights are replaced by the same ones."
    with slowed(engine, 0.1):
        waiters = [Waiter(engine, one) for one in asked]
        if swap:
            assert not any(waiter.next().finish for waiter in waiters)
            engine.update(random_weights(TINY, 0), swap, swap).result(60)
    return [waiter.end() and waiter.tokens for waiter in waiters]

def at_random(engine):
    "Replies while requests come, are cancelled and preempted: more with edits than there are slots."
    rng, replies = random.Random(0), []
    for i, one in enumerate(requests(12, lambda i: 5 + 7 * i % 40)):
        waiter, has_ended = Waiter(engine, one), False
        if i % 4 == 3 or rng.random() < 0.3:
            has_ended = waiter.next().finish is not None
        if i % 4 == 3:
            engine.cancel(waiter.number)
        else:
            replies.append((waiter, has_ended))
    tokens = [waiter.tokens for waiter, has_ended in replies if has_ended or waiter.end()]
    return tokens, generate(engine, requests(5, lambda i: 80 + i, low=100, high=120))

def options_of(parts, **more):
    return EngineOptions(max_slots=4, prefill_tiles=1, tensor_parallel=parts, native=False,
                         cache_bytes=7 * block_bytes(TINY), **more)

def mixed():
    "Replies of an engine whose prompts are computed beside decoding rows."
    engine = open_engine(random_weights(TINY, 0), options_of(1, batch_invariant=False)).start()
    assert engine._batch.programs.mixes
    out = {"tokens": scored(engine)[0]}
    long = Waiter(engine, Generation((3, 4), 120, options(2)))
    long.next()
    out["at random"], out["tight"] = at_random(engine)
    refused = Waiter(engine, Generation((5, 6), 30, constraint=Constraint(0), logprobs=True))
    out["failed"] = refused.end().finish
    engine.close()
    return out

def answers(parts):
    engine, out = open_engine(random_weights(TINY, 0), options_of(parts)).start(), {}
    out["alone"] = [generate(engine, [one])[0] for one in requests(6, lambda i: 20)]
    out["tokens"], out["logprobs"] = scored(engine)
    steady = [Generation((5, 6, 7), 60, options(0), logprobs=True), Generation((8, 9), 60, options(1)),
              Generation((1, 2, 3), 60, options(2)), Generation((3, 4), 60, options(3), logprobs=True)]
    counts.clear(), steps.clear()
    out["together"] = at_once(engine, steady)
    out["steps"] = list(steps)
    steps.clear()
    constrained = [Generation((5, 6 + i), 30, options(i), constraint=Constraint()) for i in range(4)]
    out["constrained"], out["constrained steps"] = at_once(engine, constrained), list(steps)
    out["swapped"] = [at_once(engine, steady, kind) for kind in ("recompute", "keep", "drain")]
    failing = Waiter(engine, Generation((5, 6), 30, constraint=Constraint(4)))
    beside = generate(engine, steady)
    out["failed"] = [failing.end().finish, len(failing.tokens), beside == out["together"]]
    before = engine.stats.preemptions
    out["at random"], out["tight"] = at_random(engine)
    out["preemptions"] = engine.stats.preemptions - before
    out["recompiles"] = engine.stats.recompiles_after_warmup
    engine.close()
    return out

found = {"cpu": answers(1)}
jax.default_backend = lambda: "tpu"
programs.Programs._program, on_devices.DrawnStep.__init__ = program, init
on_devices.DrawnStep.next_tokens = next_tokens
found["tpu"] = answers(2)
large = EngineOptions(max_slots=64, dtype="bfloat16", batch_invariant=False)
weights = programs.load_weights(random_weights(TINY, 0), large, Devices.take(1))
found["mixed"] = mixed()
found["programs"] = len(programs.Programs(weights, TINY, large).keys())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return results_of(RUN, 2)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["alone", "tokens", "together", "constrained", "at random", "tight"])
def test_tokens_are_those_of_one_cpu(found: dict, what: str) -> None:
    assert found["tpu"][what] == found["cpu"][what]
    assert found["tpu"]["preemptions"] > 0
    assert found["tpu"]["recompiles"] == 0


@pytest.mark.slow
def test_prompts_beside_edited_rows_change_no_token(found: dict) -> None:
    mixed = {what: found["cpu"][what] for what in ("tokens", "at random", "tight")}
    assert found["mixed"] == mixed | {"failed": "error"}


@pytest.mark.slow
def test_log_probabilities_are_those_of_one_cpu(found: dict) -> None:
    for got, expected in zip(found["tpu"]["logprobs"], found["cpu"]["logprobs"], strict=True):
        assert got == pytest.approx(expected, abs=1e-5)
    assert [len(own) for own in found["cpu"]["logprobs"]] == [20, 0, 0, 17, 0, 0, 15]


@pytest.mark.slow
def test_a_token_of_edited_rows_takes_one_program_one_array_and_no_wait(found: dict) -> None:
    steady = [counts for rows, counts in found["tpu"]["steps"] if rows == 4]
    ahead = [counts for counts in steady if counts == {"forward": 1, "arrays": 1, "waits": 0}]
    assert len(ahead) >= len(steady) - 3 > 30, found["tpu"]["steps"]
    written = sum(counts.get("write_slot", 0) for _, counts in found["tpu"]["steps"])
    assert written == 3, "one for each with biases or penalties"


@pytest.mark.slow
def test_a_token_of_constrained_rows_takes_one_program_two_arrays_and_a_wait(found: dict) -> None:
    steady = [counts for rows, counts in found["tpu"]["constrained steps"] if rows == 4]
    assert steady.count({"forward": 1, "arrays": 2, "waits": 1}) >= len(steady) - 2 > 10, steady


@pytest.mark.slow
def test_equal_weights_in_place_of_those_in_use_change_no_token(found: dict) -> None:
    """Biases and counts of replies in flight stay, whether their cache is recomputed, kept, or they end before."""
    assert found["tpu"]["swapped"] == found["cpu"]["swapped"] == [found["cpu"]["together"]] * 3


@pytest.mark.slow
def test_a_constraint_that_fails_ends_its_own_reply_alone(found: dict) -> None:
    assert found["tpu"]["failed"] == found["cpu"]["failed"] == ["error", 4, True]


@pytest.mark.slow
def test_an_engine_of_64_slots_has_at_most_12_programs(found: dict) -> None:
    assert found["programs"] <= 12


def test_a_slot_keeps_biases_of_any_number_and_counts_what_a_row_adds() -> None:
    rng, vocab = np.random.default_rng(0), 3 * CHANGES
    logits = rng.normal(size=(3, vocab)).astype(np.float32)
    bias, generated = rng.normal(size=vocab), [5, 5, 9]
    request = Generation((1,), 9, SamplingOptions(logit_bias=LogitBias(tuple(enumerate(bias.tolist())))))
    slots: Any = empty_slots(2, vocab)
    for earlier in (True, False):
        changes = slot_changes(LiveSequence(0, request, np.ones(1, np.int32)), [7] * earlier + generated)
        for i, change in enumerate(changes):
            slots = write_slot(slots, np.int32(1), np.bool_(i == 0), change)
    edits = empty_row_edits(3)
    edits.slot[1], edits.counted[1], edits.presence_penalty[1], edits.frequency_penalty[1] = 1, 1, 0.5, 0.25
    forbidden = np.zeros((4, vocab // 32), np.uint32)
    forbidden[2, 0] = 0b110
    arguments = RowEdits(*map(jnp.asarray, edits)), jnp.array([4, 9, 4]), jnp.asarray(forbidden)
    got, counts = map(np.asarray, edit_rows(jnp.asarray(logits), slots, *arguments))
    expected = logits.copy()
    expected[1] += bias.astype(np.float32)
    expected[1, 5] -= 0.5 + 2 * 0.25
    expected[1, 9] -= 0.5 + 2 * 0.25
    expected[2, [1, 2]] = -np.inf
    assert np.array_equal(got[[0, 2]], expected[[0, 2]])
    assert got[1] == pytest.approx(expected[1], abs=1e-6)
    assert not np.any(counts[0])
    assert counts[1].sum() == 4
