"""The mixture deals every prefix of rows in the asked shares, and remembers nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lemur_ray.plan.mixture import Mixture, largest_remainder
from lemur_ray.recipes.lemur_mixture import TABLE_8

weights = st.lists(st.floats(0.002, 1.0), min_size=1, max_size=12)


def rows_ahead(mixture: Mixture) -> np.ndarray:
    """By how many rows each prefix of four blocks and a little exceeds its exact share: (rows, sources)."""
    num_rows = 4 * mixture.block + 17
    source, _ = mixture.rows(np.arange(num_rows))
    dealt = np.cumsum(source[:, None] == np.arange(len(mixture.shares)), axis=0)
    return dealt - np.arange(1, num_rows + 1)[:, None] * mixture.shares


@given(weights)
@example([1.0, 1.0, 1.0, 1.0, 1.0, 0.0625, 0.03125])
@example([1.0] * 6 + [0.0078125, 0.0078125, 0.0025, 0.0062, 0.002])
@settings(max_examples=60, deadline=None)
def test_a_prefix_of_whole_blocks_is_within_one_row_of_the_exact_shares_and_any_within_two(
    weights: list[float],
) -> None:
    mixture = Mixture(weights)
    ahead = np.abs(rows_ahead(mixture))
    assert ahead[mixture.block - 1 :: mixture.block].max() < 1
    assert ahead.max() < 2


@pytest.mark.parametrize("weights", [[10.0, 1.0], [10.0, 1.0, 1.0], [row.weight_percent for row in TABLE_8]])
def test_any_prefix_of_our_own_mixtures_is_within_one_row(weights: list[float]) -> None:
    assert np.abs(rows_ahead(Mixture(weights))).max() <= 1 + 1e-6


@given(weights, st.integers(0, 10**10))
@settings(max_examples=40, deadline=None)
def test_occurrences_of_a_source_are_numbered_without_gaps_anywhere_in_the_run(
    weights: list[float], start: int
) -> None:
    mixture = Mixture(weights)
    source, occurrence = mixture.rows(np.arange(start, start + 600))
    before = mixture.counts(start)
    for index in range(len(weights)):
        mine = occurrence[source == index]
        np.testing.assert_array_equal(mine, before[index] + np.arange(len(mine)))


@given(weights, st.integers(0, 10**9))
@settings(max_examples=40, deadline=None)
def test_counts_sum_to_the_rows_and_equal_a_replay_of_the_last_block(weights: list[float], num_rows: int) -> None:
    mixture = Mixture(weights)
    counts = mixture.counts(num_rows)
    assert counts.sum() == num_rows
    at_boundary = num_rows // mixture.block * mixture.block
    np.testing.assert_array_equal(mixture.counts(at_boundary), largest_remainder(at_boundary, mixture.shares))


@given(weights)
@settings(max_examples=20, deadline=None)
def test_rows_in_any_order_and_repeated_are_the_same_rows(weights: list[float]) -> None:
    mixture = Mixture(weights)
    rows = np.random.default_rng(0).integers(0, 5000, 300)
    all_sources, all_occurrences = mixture.rows(np.arange(5000))
    source, occurrence = mixture.rows(rows)
    np.testing.assert_array_equal(source, all_sources[rows])
    np.testing.assert_array_equal(occurrence, all_occurrences[rows])


def test_table_8_over_the_whole_run_is_its_largest_remainder_rounding() -> None:
    weights = [row.weight_percent for row in TABLE_8]
    assert sum(weights) == pytest.approx(99.90)
    mixture = Mixture(weights)
    counts = mixture.counts(21_972_992)
    assert counts[0] == 15_996_954
    expected = largest_remainder(21_972_992, np.array(weights) / sum(weights))
    assert np.abs(counts - expected).max() <= 1
    np.testing.assert_allclose(counts / 21_972_992, np.array(weights) / sum(weights), rtol=1e-4)


def test_a_source_of_weight_zero_never_comes() -> None:
    source, _ = Mixture([1.0, 0.0, 3.0]).rows(np.arange(3000))
    assert set(np.unique(source)) == {0, 2}


@pytest.mark.parametrize("bad", [[], [0.0, 0.0], [-1.0, 2.0], [float("nan")], [float("inf"), 1.0]])
def test_weights_that_are_no_shares_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="expected finite numbers"):
        Mixture(bad)


def test_a_share_too_small_to_deal_is_refused_with_the_limit() -> None:
    with pytest.raises(ValueError, match="at least 1e-05"):
        Mixture([1.0, 1e-7])


def test_largest_remainder_gives_spare_rows_to_the_largest_fractions() -> None:
    np.testing.assert_array_equal(largest_remainder(10, np.array([0.46, 0.37, 0.17])), [4, 4, 2])
    np.testing.assert_array_equal(largest_remainder(np.array([0, 1]), np.array([0.5, 0.5])), [[0, 0], [1, 0]])
