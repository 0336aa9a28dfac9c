"""Drawing tokens: which may be drawn, and what a draw depends on."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from lemur_ray.serve.compute.sampling import (
    PREFILTER,
    ROWS,
    allow_all,
    compute_logprobs,
    edit,
    empty_draw,
    empty_edits,
    greedy,
    sample,
    seed_words,
)

VOCAB = 600


def draw(logits: np.ndarray, *, times: int = 1, position: int = 0, **settings: float) -> np.ndarray:
    """(times, rows) draws at successive seeds."""
    rows = len(logits)
    out = []
    for seed in range(times):
        d = empty_draw(rows)
        d.temperature[:] = settings.get("temperature", 1.0)
        d.top_k[:] = settings.get("top_k", 0)
        d.top_p[:] = settings.get("top_p", 1.0)
        d.min_p[:] = settings.get("min_p", 0.0)
        d.seed[:] = seed_words(int(settings.get("seed", seed)))
        d.position[:] = position
        out.append(np.asarray(sample(logits, d)))
    return np.array(out)


def logits(seed: int, spread: float) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((ROWS, VOCAB)) * spread).astype(np.float32)


def nucleus(row: np.ndarray, k: int, p: float) -> set[int]:
    """The reference: sort everything, keep k, then the fewest whose share of what is left reaches p."""
    order = np.argsort(-row, kind="stable")[: k or len(row)]
    mass = np.exp(row[order].astype(np.float64) - row.max())
    before = np.cumsum(mass / mass.sum()) - mass / mass.sum()
    return set(order[before < p].tolist())


@pytest.mark.parametrize(
    ("spread", "k", "p"),
    [
        (1.0, 5, 1.0),
        (3.0, 0, 0.7),
        (1.0, 40, 0.5),
        # Flat: the prefilter does not hold enough mass, or not enough tokens; everything is sorted.
        (0.3, 0, 0.9),
        (0.3, PREFILTER + 50, 1.0),
        (0.3, PREFILTER + 50, 0.8),
    ],
)
def test_only_tokens_of_the_nucleus_are_drawn_and_all_of_them(spread: float, k: int, p: float) -> None:
    x = logits(1, spread)
    drawn = draw(x, times=200, top_k=k, top_p=p)
    for row in range(ROWS):
        allowed = nucleus(x[row], k, p)
        assert set(drawn[:, row].tolist()) <= allowed
        if len(allowed) <= 5:
            assert set(drawn[:, row].tolist()) == allowed


@pytest.mark.parametrize(("min_p", "k"), [(0.2, 0), (0.2, 3), (1.0, 0)])
def test_tokens_below_a_share_of_the_likeliest_one_are_never_drawn(min_p: float, k: int) -> None:
    x = logits(4, 1.5)
    drawn = draw(x, times=300, min_p=min_p, top_k=k)
    for row in range(ROWS):
        chances = np.exp(x[row] - x[row].max())
        allowed = set(np.flatnonzero(chances >= min_p).tolist()) & nucleus(x[row], k, 1.0)
        assert set(drawn[:, row].tolist()) <= allowed
        assert len(set(drawn[:, row].tolist())) > len(allowed) // 2


def test_frequencies_follow_the_softmax() -> None:
    x = np.tile(np.log(np.array([0.5, 0.3, 0.2], np.float32)), (ROWS, 1))
    drawn = draw(x, times=1500)[:, 0]
    assert np.bincount(drawn, minlength=3) / 1500 == pytest.approx([0.5, 0.3, 0.2], abs=0.05)


def test_a_draw_depends_on_seed_position_and_choice_alone() -> None:
    x, neighbours = logits(2, 1.0), logits(3, 0.1)
    alone = draw(np.tile(x[:1], (ROWS, 1)), seed=7, position=5, top_p=0.9)[0]
    assert len(set(alone.tolist())) == 1
    beside = neighbours.copy()
    beside[4] = x[0]
    assert draw(beside, seed=7, position=5, top_p=0.9)[0, 4] == alone[0]
    others = {int(draw(x, seed=7, position=p)[0, 0]) for p in range(20)}
    assert len(others) > 5


def test_edits_are_added_and_what_is_not_allowed_is_out_of_the_question() -> None:
    x, edits = logits(5, 1.0), empty_edits(allow_all(ROWS, VOCAB))
    assert np.array_equal(edit(x, edits), x)
    edits.ids[2, :3], edits.values[2, :3] = [7, 599, 0], [1.5, -2.0, 100.0]
    edits.allowed[4] = 0
    edits.allowed[4, 599 // 32] = np.uint32(1) << np.uint32(599 % 32)
    expected = x.copy()
    expected[2, [7, 599, 0]] += np.array([1.5, -2.0, 100.0], np.float32)
    expected[4, :599] = -np.inf
    assert np.array_equal(edit(x, edits), expected)


def test_scores_are_log_softmax_and_do_not_depend_on_the_rows_beside() -> None:
    x, ids = logits(6, 2.0), np.arange(ROWS, dtype=np.int32) * 70
    logprob, top_ids, top = map(np.asarray, compute_logprobs(x, ids))
    reference = torch.log_softmax(torch.from_numpy(x).double(), -1).numpy()
    assert np.abs(logprob - reference[np.arange(ROWS), ids]).max() < 1e-5
    assert np.array_equal(top_ids, np.argsort(-x, axis=-1, kind="stable")[:, : top_ids.shape[1]])
    assert np.abs(top - np.take_along_axis(reference, top_ids, -1)).max() < 1e-5
    many = compute_logprobs(np.tile(x, (4, 1)), np.tile(ids, 4))
    for field, few in zip(many, (logprob, top_ids, top), strict=True):
        assert np.array_equal(np.asarray(field)[-ROWS:], few)


def test_greedy_takes_the_lowest_id_on_ties() -> None:
    x = np.zeros((ROWS, VOCAB), np.float32)
    x[:, [9, 4, 300]] = 1.0
    assert np.asarray(greedy(x)).tolist() == [4] * ROWS
    assert draw(x, temperature=0.0)[0].tolist() == [4] * ROWS


def test_seeds_of_any_sign_and_length_are_two_words() -> None:
    assert seed_words(5) == (0, 5)
    assert seed_words(-1) == (0xFFFFFFFF, 0xFFFFFFFF)
    assert seed_words((1 << 64) + 3) == (0, 3)


CUT = """
import sys
from functools import partial
import jax, numpy as np
from jax.sharding import PartitionSpec as P
from lemur_ray.serve.compute.cut_logits import Cut, padded_vocab
from lemur_ray.serve.compute.devices import AXIS, WHOLE, Devices
from lemur_ray.serve.compute import sampling

rows, vocab, parts, cut = 64, 1003, 4, Cut(AXIS, 1003)
rng, devices = np.random.default_rng(0), Devices.take(4)
def run(name, x, *arguments):
    padded = np.pad(x, ((0, 0), (0, padded_vocab(vocab, parts) - vocab)), constant_values=-np.inf)
    function, spec = partial(getattr(sampling, name), cut=cut), P(None, AXIS)
    got = devices.program(function, (spec, *[WHOLE] * len(arguments)), WHOLE)(padded, *arguments)
    return got, getattr(sampling, name)(x, *arguments)
for spread in (0.2, 1, 4):
    x = (rng.normal(size=(rows, vocab)) * spread).astype(np.float32)
    x[:, 7] = x[:, 900] = x.max(axis=1)  # the highest one twice, on two devices
    draw = sampling.empty_draw(rows)
    draw.temperature[:] = rng.choice([0, 0.7, 1, 1.3], rows)
    draw.top_k[:] = rng.choice([0, 0, 1, 50, 400, 1003, 5000], rows)
    draw.top_p[:] = rng.choice([1, 0.9, 0.5, 0.99], rows)
    draw[3][:] = rng.choice([0, 0, 0.05], rows)
    draw.seed[:], draw.position[:] = rng.integers(0, 2**32, (rows, 2)), rng.integers(0, 4000, rows)
    for name, arguments in (("sample", (draw,)), ("greedy", ())):
        assert np.array_equal(*run(name, x, *arguments)), name
    (own, ids, top), (own_whole, ids_whole, top_whole) = run("compute_logprobs", x, rng.integers(0, vocab, rows))
    assert np.array_equal(ids, ids_whole)
    assert max(np.abs(own - own_whole).max(), np.abs(top - top_whole).max()) < 2e-6
"""


@pytest.mark.slow
def test_logits_that_four_devices_share_give_the_tokens_of_whole_ones() -> None:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run([sys.executable, "-c", CUT], capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
