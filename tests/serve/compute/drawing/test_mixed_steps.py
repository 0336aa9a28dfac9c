"""Steps that decode and compute tiles of prompts in one program: the tokens of two programs, in every order of events.

One simulated device with unrolled layers, and two with stacked ones, whose sums the devices add. In
one process of its own, where a follower makes a leader's calls, too.
"""

from typing import Any

import pytest

from tests.fake_devices import results_of

pytestmark = pytest.mark.slow

RUN = """
import dataclasses, json, queue, random, threading
import jax, numpy as np
from lemur_ray.serve.compute import lockstep, on_devices, programs
from lemur_ray.serve.compute.attention import block_bytes
from lemur_ray.serve.compute.devices import Devices
from lemur_ray.serve.compute.wire import called, encode
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import LogitBias, SamplingOptions
from lemur_ray.weights.open_model import random_weights
from tests.serve.offline import generate
from tests.serve.tiny import TINY, Waiter, prompts

SLOTS, TILES = 4, 1
jax.default_backend = lambda: "tpu"
forwards, arrays, waits = [], [], []
plain_program, plain_ids = programs.Programs._program, on_devices.DrawnStep.next_tokens

def program(self, *key):
    compiled = plain_program(self, *key)
    def call(*arguments):
        forwards.append([*key])
        arrays.append(sum(isinstance(x, np.ndarray) for x in jax.tree.leaves(arguments)))
        return compiled(*arguments)
    return call

def next_tokens(self, rows):
    waits.append(not forwards or forwards[-1] is self.number)
    return plain_ids(self, rows)

plain_init = on_devices.StepOnDevices.__init__
def init(self, *arguments):
    plain_init(self, *arguments)
    self.number = forwards[-1] if forwards else None

programs.Programs._program, on_devices.StepOnDevices.__init__ = program, init
on_devices.DrawnStep.next_tokens = next_tokens

def request(i, prompt, new=12, stop=()):
    return Generation(prompt, new, SamplingOptions(i, float(i % 2), 0.9), frozenset(stop))

def edges():
    "Prompts that end on, before and behind the end of a tile or block."
    return [request(i, tuple((7 * i + j) % 90 + 7 for j in range(n)), 5 + i % 7)
            for i, n in enumerate((31, 32, 33, 1, 64, 65, 127, 128, 129, 63, 2, 96))]

def at_random(engine):
    "Replies while requests come, stop, are cancelled and preempted; those of cancelled requests are left out."
    rng, replies = random.Random(0), []
    asked = [request(i, p, rng.randrange(1, 90)) for i, p in enumerate(prompts(14, seed=9, high=120))]
    stops = generate(engine, asked[:3])
    asked += [request(i, asked[i].prompt, 60, stops[i][-1:]) for i in range(3)]
    for i, one in enumerate(asked):
        waiter, has_ended = Waiter(engine, one), False
        if i % 5 == 4 or rng.random() < 0.4:
            has_ended = waiter.next().finish is not None
        if i % 5 == 4:
            engine.cancel(waiter.number)
        else:
            replies.append((waiter, has_ended))
    tokens = [waiter.tokens for waiter, has_ended in replies if has_ended or waiter.end()]
    tight = [Generation(p, 200 - len(p)) for p in prompts(4, seed=62, low=100, high=120)]
    return tokens + generate(engine, tight)

def answers(engine):
    out = {"edges": generate(engine, edges())}
    long = Waiter(engine, request(1, (5, 6, 7), 180))
    long.next()
    forwards.clear(), arrays.clear(), waits.clear()
    out["with a decoding row"] = generate(engine, [one for one in edges() if 1 < len(one.prompt) < 100])
    out["programs"], out["arrays"], out["waits"] = list(forwards), sorted(set(arrays)), sum(waits)
    engine.cancel(long.number)
    before = engine.stats.preemptions
    out["at random"] = at_random(engine)
    out["preemptions"] = engine.stats.preemptions - before
    return out

def options(parts, exact):
    return EngineOptions(max_slots=SLOTS, prefill_tiles=TILES, tensor_parallel=parts, native=False,
                         batch_invariant=exact, cache_bytes=7 * block_bytes(TINY))

def compared(parts, exact):
    engine = Engine(on_devices.OnDevices(random_weights(TINY, 0), options(parts, exact)), "0").start()
    mixes, out = engine._batch.programs.mixes, {}
    for name, mixing in (("mixed", mixes), ("separate", False)):
        engine._batch.programs.mixes = mixing
        out[name] = answers(engine)
    engine._batch.programs.mixes = mixes
    begun = [Waiter(engine, one) for one in edges()]
    begun[0].next()
    engine.update(random_weights(TINY, 1), "1").result(60)
    replies = [waiter.by_version() for waiter in begun]
    right = []
    for one, waiter, parts_of, old in zip(edges(), begun, replies, out["separate"]["edges"]):
        tokens, (last, part) = waiter.tokens, [*parts_of.items()][-1]
        split = len(tokens) - (last != "0") * len(part)
        new = one.max_tokens - split
        again = Generation((*one.prompt, *old[:split]), new, one.sampling)
        right.append(tokens == old[:split] + (generate(engine, [again])[0] if new else []))
    out |= {"mixes": mixes, "swapped": all(right), "recompiles": engine.stats.recompiles_after_warmup}
    out["left"] = [len(engine._batch.scheduler.running), len(engine._pending)]
    engine.close()
    return out

def divided_otherwise():
    "Tokens of an engine of the same process whose mixed step has as many rows, more of them tiles."
    own = dataclasses.replace(options(1, False), max_slots=SLOTS - 2, prefill_tiles=TILES + 2)
    engine = Engine(on_devices.OnDevices(random_weights(TINY, 0), own), "0").start()
    tokens = generate(engine, edges())
    engine.close()
    return tokens

class FollowersLine:
    "A follower's end and the leader's, without a network."
    def __init__(self):
        self.calls, self.answers, self.names = queue.SimpleQueue(), queue.SimpleQueue(), []
    def send(self, message):
        self.names.append(called(message))
        self.calls.put(message)
    def receive(self):
        return self.answers.get()

class OddTokens:
    def allowed(self):
        return np.full(9, 0xAAAAAAAA, np.uint32)
    def accept(self, token):
        pass

def followed():
    line, own, devices = FollowersLine(), options(1, False), Devices.take(1)
    weights = programs.load_weights(random_weights(TINY, 0), own, devices)
    follower = programs.Programs(weights, TINY, own, devices)
    follower.warm_up()
    line.answers.put(encode("warm", ("0", follower.form), []))
    engine = Engine(on_devices.OnDevices(random_weights(TINY, 0), own, lockstep.Group([line], "0")), "0").start()
    line.names.clear()
    forwards.clear()
    biased = SamplingOptions(1, 1.0, logit_bias=LogitBias(((9, 3.0),)), frequency_penalty=0.5)
    generate(engine, edges() + [Generation((5, 6, 7), 20, biased, logprobs=True), Generation((8, 9), 9, biased)])
    odd = generate(engine, [Generation((5, 6), 9, biased, constraint=OddTokens())])[0]
    names, steps = list(line.names), [key for key in forwards if key[0] == "forward"]
    engine.close()
    engine.compute.close()
    lockstep._make_calls(follower, line.calls, [], line)
    leader = engine._batch.programs.programs
    pairs = zip(jax.tree.leaves(leader._cache), jax.tree.leaves(follower._cache))
    same = all(np.array_equal(a, b) for a, b in pairs) and np.array_equal(leader._last_ids, follower._last_ids)
    same = same and all(map(np.array_equal, leader._slots, follower._slots)) and np.any(leader._slots.counts)
    return {"messages": names, "steps": steps, "same": bool(same), "odd": [token % 2 for token in odd]}

results = {"unrolled": compared(1, False), "stacked": compared(2, False), "followed": followed()}
print(json.dumps(results | {"divided otherwise": divided_otherwise()}))
"""
MIXED = ["forward", 5, 32]
"""The mixed program of four slots and one tile"""


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    return results_of(RUN, 2)


@pytest.mark.parametrize("how", ["unrolled", "stacked"])
def test_tokens_are_those_of_two_programs(results: dict, how: str) -> None:
    assert results[how]["mixes"] is True
    for what in ("edges", "with a decoding row", "at random"):
        assert results[how]["mixed"][what] == results[how]["separate"][what], what
    assert results[how]["mixed"]["preemptions"] > 0
    assert (results[how]["swapped"], results[how]["recompiles"], results[how]["left"]) == (True, 0, [0, 0])


@pytest.mark.parametrize("how", ["unrolled", "stacked"])
def test_prompts_beside_a_decoding_row_take_one_program_one_array_and_no_wait(results: dict, how: str) -> None:
    mixed, separate = (results[how][name]["programs"] for name in ("mixed", "separate"))
    forwards = [key for key in mixed if key[0] == "forward"]
    assert forwards.count(MIXED) > 7
    assert all(key == MIXED or key[2] == 1 for key in forwards), "a program for prompts alone"
    assert {key[0] for key in mixed} <= {"forward", "copy"}
    assert results[how]["mixed"]["arrays"] in ([1], [0, 1]), "a copied block takes numbers"
    assert results[how]["mixed"]["waits"] <= 1
    assert results[how]["separate"]["waits"] > 10
    assert MIXED not in separate


def test_engines_of_one_process_divide_equally_many_rows_in_their_own_way(results: dict) -> None:
    assert results["divided otherwise"] == results["unrolled"]["separate"]["edges"]


def test_a_follower_makes_every_mixed_step_from_one_message(results: dict) -> None:
    followed = results["followed"]
    assert followed["steps"].count(MIXED) > 10
    names = [name for name in followed["messages"] if name != "copy"]
    assert sorted(names) == ["forward"] * len(followed["steps"]) + ["write_slot"] * 3
    assert followed["odd"] == [1] * 9
    assert followed["same"], "the caches, tokens and slots of leader and follower"
