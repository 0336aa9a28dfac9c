"""Drawing tokens: which may be drawn, and what a draw depends on."""

import numpy as np
import pytest

from lemur_ray.serve.programs import empty_draw
from lemur_ray.serve.sampling import PREFILTER, ROWS, greedy, sample, seed_words

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


def test_greedy_takes_the_lowest_id_on_ties() -> None:
    x = np.zeros((ROWS, VOCAB), np.float32)
    x[:, [9, 4, 300]] = 1.0
    assert np.asarray(greedy(x)).tolist() == [4] * ROWS
    assert draw(x, temperature=0.0)[0].tolist() == [4] * ROWS


def test_seeds_of_any_sign_and_length_are_two_words() -> None:
    assert seed_words(5) == (0, 5)
    assert seed_words(-1) == (0xFFFFFFFF, 0xFFFFFFFF)
    assert seed_words((1 << 64) + 3) == (0, 3)
