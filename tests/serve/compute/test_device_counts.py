"""One model over 1 to 16 simulated devices, fewer and more than kv heads, with all kinds of sums.

Runs in one process of its own, which has as many devices as it started with, and prints what it computed.
"""

from typing import Any

import pytest

from tests.fake_devices import results_of

pytestmark = pytest.mark.slow

SIZES = (1, 2, 4, 8, 16)
KV_HEADS = (2, 8)

RUN = """
import dataclasses, json, sys
from functools import partial
import jax, jax.numpy as jnp, numpy as np
from lemur_ray.serve.compute.cache_layout import PLAIN, allocate
from lemur_ray.serve.compute.cut_logits import cut_of, logits_spec
from lemur_ray.serve.compute.devices import WHOLE, Devices, part_of
from lemur_ray.serve.compute.forward import forward
from lemur_ray.serve.compute.invariant import EXACT_CPU
from lemur_ray.serve.compute.forward import empty_step
from lemur_ray.serve.compute.weights import prepare, weight_specs
from lemur_ray.train.aot.hlo import read
from lemur_ray.weights.open_model import random_weights
from tests.serve.tiny import TINY

PROMPT = [5, 99, 3, 42, 17, 8, 77]

class Model:
    def __init__(self, kv_heads, parts, sums, rows, form="columns", length=8, layers=1, scanned=False):
        self.config = dataclasses.replace(TINY, num_layers=layers, num_heads=16, num_kv_heads=kv_heads, head_dim=8)
        devices, part = Devices.take(parts), part_of(self.config, parts)
        how = EXACT_CPU._replace(axis=devices.axis, sums=sums)
        self.weights = prepare(random_weights(self.config, 0), jnp.float32, devices, form, sums, scanned=scanned)
        pools = partial(allocate, PLAIN, part, rows + 1, jnp.float32, scanned=scanned)
        self.cache = devices.allocate(pools, PLAIN.cut)
        where = weight_specs(self.config, form, sums, scanned=scanned)
        step = partial(forward, config=self.config, how=how, layout=PLAIN)
        logits = logits_spec(cut_of(self.config, how))
        self.program = devices.program(step, (where, PLAIN.cut, WHOLE, WHOLE), (logits, WHOLE, PLAIN.cut), donate=(1,))
        self.shape = rows, length

    def step(self, rows, start):
        "Logits after new tokens, rows: row of the step -> (tokens, block); the others are padding."
        ids, place = empty_step(*self.shape, 2)
        for r, (tokens, block) in rows.items():
            ids[r, : len(tokens)], place.tables[r, 0] = tokens, block
            place.starts[r], place.counts[r] = start, len(tokens)
        place = place._replace(num_rows=np.int32(max(rows) + 1))
        logits, _, self.cache = self.program(self.weights, self.cache, ids, place)
        return np.asarray(logits)[:, : self.config.vocab_size]

    def collectives(self):
        "Kind of collective -> number of executions in a step."
        compiled = self.program.lower(self.weights, self.cache, *empty_step(*self.shape, 2)).compile()
        counts = {}
        for c in read(compiled.as_text(), dynamic_trips=1).collectives:
            counts[c.kind] = counts.get(c.kind, 0) + c.count
        return counts

    def greedy(self, row=0, others=(), steps=8):
        "Ids and logits of tokens after PROMPT in row ``row``, beside ``others`` with prompts of their own."
        prompts = {r: [(r * 13 + i) % 90 for i in range(len(PROMPT))] for r in others} | {row: PROMPT}
        for start in range(0, len(PROMPT), self.shape[1]):
            pieces = {r: (prompt[start : start + self.shape[1]], 1 + r) for r, prompt in prompts.items()}
            logits = [self.step(pieces, start)[row]]
        for i in range(steps - 1):
            pieces = {r: ([int(logits[-1].argmax())], 1 + r) for r in prompts}
            logits.append(self.step(pieces, len(PROMPT) + i)[row])
        return [int(x.argmax()) for x in logits], np.stack(logits)

kinds = ("ids", "collectives", "difference", "replicas", "devices of a matrix", "exact", "int8", "scanned")
found = {kind: {} for kind in kinds}
for kv_heads in (2, 8):
    one_ids, one = Model(kv_heads, 1, "gather", 2).greedy()
    found["ids"][f"{kv_heads} 1 gather"] = one_ids
    kinds = [(2, "ordered"), (4, "all_reduce"), (8, "ordered"), (16, "all_reduce")]
    kinds += [(4, "ordered")] if kv_heads == 2 else [(16, "gather")]
    for parts, sums in kinds:
        model, name = Model(kv_heads, parts, sums, 2), f"{kv_heads} {parts} {sums}"
        if parts == 4 and kv_heads == 2:
            found["collectives"][sums] = model.collectives()
        found["ids"][name], logits = model.greedy()
        found["difference"][name] = float(np.abs(logits - one).max())
        wo = model.weights.layers[0].wo
        found["devices of a matrix"][name] = [n // m for n, m in zip(wo.shape, wo.addressable_shards[0].data.shape)]
        pages = [np.asarray(shard.data) for shard in model.cache[0].k.addressable_shards]
        copies = max(1, parts // kv_heads)
        found["replicas"][name] = [all(np.array_equal(pages[n], pages[n - n % copies]) for n in range(parts)),
                                   len({page.tobytes() for page in pages})]

reference = Model(2, 4, "ordered", 1, length=1).greedy(steps=2)[1]
for rows in (7, 64):
    model = Model(2, 4, "ordered", rows, length=1)
    for row, others in ((0, ()), (rows - 1, (1, 2)), (rows - 1, range(rows - 1))):
        logits = model.greedy(row, others, steps=2)[1]
        found["exact"][f"{rows} {row} {len(others)}"] = bool(np.array_equal(reference, logits))
whole = Model(2, 1, "gather", 2).greedy(steps=1)[1]
for parts, sums in ((1, "gather"), (4, "gather"), (4, "ordered")):
    rounded = Model(2, parts, sums, 2, "int8").greedy(steps=1)[1]
    found["int8"][f"{parts} {sums}"] = float(np.sqrt(np.mean((rounded - whole) ** 2)))
for parts, sums in ((1, "gather"), (2, "ordered")):
    models = (Model(2, parts, sums, 2, "rows", layers=3, scanned=scanned) for scanned in (False, True))
    (ids, plain), (same, scanned) = (model.greedy(1, (0,), steps=3) for model in models)
    found["scanned"][str(parts)] = [float(np.abs(plain - scanned).max()), ids == same]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    """Results by number of kv heads, number of devices and kind of sums."""
    return results_of(RUN, 16)


@pytest.mark.parametrize("kv_heads", KV_HEADS)
def test_tokens_and_logits_do_not_depend_on_the_number_of_devices(found: dict, kv_heads: int) -> None:
    ids = {name: ids for name, ids in found["ids"].items() if name.startswith(f"{kv_heads} ")}
    assert {int(name.split()[1]) for name in ids} == set(SIZES)
    assert len(set(map(tuple, ids.values()))) == 1
    assert len(set(ids[f"{kv_heads} 1 gather"])) > 3
    assert max(size for name, size in found["difference"].items() if name in ids) < 2e-4


def test_devices_that_share_a_kv_head_hold_equal_pages_and_no_two_others_do(found: dict) -> None:
    for name, (equal, distinct) in found["replicas"].items():
        kv_heads, parts, _ = name.split()
        assert equal, name
        assert distinct == min(int(kv_heads), int(parts)), name


def test_the_output_matrix_of_attention_is_cut_along_its_inputs_unless_sums_are_gathered(found: dict) -> None:
    for name, (inputs, outputs) in found["devices of a matrix"].items():
        _, parts, sums = name.split()
        assert (inputs, outputs) == ((1, int(parts)) if sums == "gather" else (int(parts), 1)), name


def test_sums_take_two_collectives_a_layer_in_the_networks_order_and_four_in_a_fixed_one(found: dict) -> None:
    """Of one layer; the embedding is gathered, too, the logits stay where they are."""
    assert found["collectives"]["all_reduce"] == {"all-reduce": 2, "all-gather": 1}
    assert found["collectives"]["ordered"] == {"all-to-all": 2, "all-gather": 2 + 1}


def test_ordered_sums_of_a_row_are_bit_equal_in_other_rows_other_batches_and_beside_other_work(found: dict) -> None:
    assert found["exact"] == dict.fromkeys(found["exact"], True)
    assert {int(name.split()[0]) for name in found["exact"]} == {7, 64}


def test_scanned_layers_with_one_pool_give_the_logits_of_unrolled_ones(found: dict) -> None:
    assert list(found["scanned"]) == ["1", "2"]
    for difference, same_ids in found["scanned"].values():
        assert difference <= 1e-6
        assert same_ids


def test_int8_matrices_cut_along_their_inputs_are_as_exact_as_on_one_device(found: dict) -> None:
    """Inputs are rounded by the largest of a device's own, which is no larger than that of all."""
    errors = found["int8"]
    assert errors["4 gather"] == pytest.approx(errors["1 gather"], abs=1e-5)
    assert 0 < errors["4 ordered"] < 1.2 * errors["1 gather"]
