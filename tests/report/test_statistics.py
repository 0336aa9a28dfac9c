"""Intervals and paired comparisons, against published values, scipy, and what must hold for every input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lemur_ray.report.statistics import (
    bootstrap_mean,
    clustered_wilson,
    mcnemar,
    paired_by_task,
    paired_difference,
    t_interval,
    wilson,
)

counts = st.integers(0, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # R. G. Newcombe, Statistics in Medicine 17 (1998) 857, Table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_published_values(successes: int, n: int, low: float, high: float) -> None:
    interval = wilson(successes, n)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


def test_wilson_gives_the_interval_that_the_robocodegen_notes_print() -> None:
    interval = wilson(28, 37)
    assert (round(interval.low * 100, 1), round(interval.high * 100, 1)) == (59.9, 86.6)


@given(counts, st.sampled_from([0.5, 0.8, 0.95, 0.99]))
def test_wilson_equals_scipy_and_holds_the_observed_share(count: tuple[int, int], confidence: float) -> None:
    successes, n = count
    interval = wilson(successes, n, confidence)
    assert 0 <= interval.low <= interval.high <= 1
    if n == 0:
        assert (interval.low, interval.high) == (0, 1)
        return
    assert successes / n in interval
    oracle = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert interval.low == pytest.approx(oracle.low, abs=1e-12)
    assert interval.high == pytest.approx(oracle.high, abs=1e-12)


@given(counts)
def test_wilson_of_the_failures_mirrors_that_of_the_successes(count: tuple[int, int]) -> None:
    successes, n = count
    one, other = wilson(successes, n), wilson(n - successes, n)
    assert one.low == pytest.approx(1 - other.high, abs=1e-12)
    assert one.high == pytest.approx(1 - other.low, abs=1e-12)


@pytest.mark.parametrize(("successes", "n"), [(-1, 3), (4, 3)])
def test_wilson_refuses_counts_that_cannot_be(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="expected 0 <= successes <= n"):
        wilson(successes, n)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.integers(0, 5))
@settings(max_examples=40)
def test_a_bootstrap_lies_within_the_values_and_repeats_with_its_seed(values: list[float], seed: int) -> None:
    interval = bootstrap_mean(values, seed=seed, resamples=200)
    assert min(values) - 1e-9 <= interval.low <= interval.high <= max(values) + 1e-9
    assert interval == bootstrap_mean(values, seed=seed, resamples=200)


def test_a_bootstrap_of_many_values_is_close_to_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(0.3, 1.0, 2000).tolist()
    interval = bootstrap_mean(values)
    half = 1.96 * np.std(values) / math.sqrt(len(values))
    assert interval.low == pytest.approx(np.mean(values) - half, abs=0.01)
    assert interval.high == pytest.approx(np.mean(values) + half, abs=0.01)


def test_repeats_of_one_task_do_not_narrow_the_interval_when_clustered() -> None:
    scores = [float(i % 2) for i in range(20)]
    tasks = list(range(20))
    once = bootstrap_mean(scores, tasks)
    tenfold = bootstrap_mean(scores * 10, tasks * 10)
    careless = bootstrap_mean(scores * 10)
    assert tenfold == once
    assert careless.high - careless.low < 0.5 * (once.high - once.low)


def test_a_bootstrap_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        bootstrap_mean([])


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_equals_scipys_exact_binomial_test(only_a: int, only_b: int) -> None:
    oracle = stats.binomtest(only_a, only_a + only_b, 0.5).pvalue if only_a + only_b else 1.0
    assert mcnemar(only_a, only_b) == pytest.approx(min(1.0, oracle), rel=1e-12)
    assert mcnemar(only_a, only_b) == mcnemar(only_b, only_a)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80))
def test_a_paired_difference_turns_around_when_the_policies_do(pairs: list[tuple[bool, bool]]) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    one, other = paired_difference(a, b), paired_difference(b, a)
    assert one.difference == pytest.approx((sum(a) - sum(b)) / len(a))
    assert one.difference == -other.difference
    assert one.interval.low == pytest.approx(-other.interval.high)
    assert -1 <= one.interval.low <= one.interval.high <= 1
    assert (one.only_a, one.only_b) == (other.only_b, other.only_a)


def test_a_paired_interval_covers_the_true_difference_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    covered, rounds = 0, 600
    for _ in range(rounds):
        skill = rng.random(60)
        a, b = rng.random(60) < skill, rng.random(60) < 0.8 * skill
        covered += 0.1 in paired_difference(a.tolist(), b.tolist()).interval
    assert covered / rounds > 0.93


def test_policies_are_compared_on_the_same_tasks_only() -> None:
    with pytest.raises(ValueError, match="the same tasks"):
        paired_difference([True], [True, False])
    with pytest.raises(ValueError, match="nothing to compare"):
        paired_difference([], [])


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_a_cluster_for_each_observation_is_no_narrower_than_wilson_and_holds_the_share(hits: list[bool]) -> None:
    share, found = sum(hits) / len(hits), clustered_wilson(hits, range(len(hits)))
    plain = wilson(sum(hits), len(hits))
    assert share in found
    assert found.high - found.low >= plain.high - plain.low - 1e-12


def test_observations_that_repeat_one_another_add_nothing() -> None:
    hits = [i % 3 == 0 for i in range(60)]
    once, ten_times = clustered_wilson(hits, range(60)), clustered_wilson(hits * 10, [*range(60)] * 10)
    assert (ten_times.low, ten_times.high) == pytest.approx((once.low, once.high))
    assert wilson(200, 600).high - wilson(200, 600).low < 0.5 * (ten_times.high - ten_times.low)


def test_observations_alike_in_all_clusters_count_the_clusters_alone() -> None:
    assert clustered_wilson([True] * 30, [i // 10 for i in range(30)]) == wilson(3, 3)
    with pytest.raises(ValueError, match="2 cluster labels for 1"):
        clustered_wilson([True], [1, 2])


def test_a_clustered_interval_covers_the_truth_where_wilson_does_not() -> None:
    """40 tasks of which each is always or never solved, ten times each."""
    rng = np.random.default_rng(5)
    clustered = naive = 0
    for _ in range(300):
        solved = rng.random(40) < 0.4
        hits, tasks = [bool(x) for x in np.repeat(solved, 10)], [int(x) for x in np.repeat(np.arange(40), 10)]
        clustered += 0.4 in clustered_wilson(hits, tasks)
        naive += 0.4 in wilson(sum(hits), 400)
    assert clustered / 300 > 0.92
    assert naive / 300 < 0.6


def test_tasks_are_paired_and_not_their_episodes() -> None:
    same = paired_by_task([0.0] * 20)
    assert (same.difference, same.p_value) == (0.0, 1.0)
    found = paired_by_task([0.5, 0.25, 0.5, 1.0, 0.25, 0.5, -0.25, 0.75, 0.5, 0.25])
    assert (found.n, found.only_a, found.only_b) == (10, 9, 1)
    assert 0 < found.interval.low < found.difference < found.interval.high
    # All signs as they are, or one of the three of 0.25 the other way; and the same mirrored.
    assert found.p_value == pytest.approx(8 / 1024, abs=0.003)
    assert found == paired_by_task([0.5, 0.25, 0.5, 1.0, 0.25, 0.5, -0.25, 0.75, 0.5, 0.25]), "seeded"
    with pytest.raises(ValueError, match="no common task"):
        paired_by_task([])


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30), st.sampled_from([0.5, 0.8, 0.95, 0.99]))
@settings(deadline=None)
def test_students_interval_equals_scipys(values: list[float], confidence: float) -> None:
    mean, low, high = t_interval(values, confidence)
    half = stats.t.ppf(0.5 + confidence / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    assert mean == pytest.approx(np.mean(values), abs=1e-12)
    assert (low, high) == pytest.approx((mean - half, mean + half), rel=1e-12, abs=1e-12)


def test_a_bootstrap_of_single_values_equals_scipys_from_the_same_seed() -> None:
    values = np.random.default_rng(0).random(40).tolist()
    oracle = stats.bootstrap((values,), np.mean, n_resamples=2000, method="percentile", rng=0).confidence_interval
    found = bootstrap_mean(values)
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high), abs=1e-12)
