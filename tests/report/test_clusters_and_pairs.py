"""Clusters above the task, what a comparison can see, many pairs at once, averages of kinds: by scipy and by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import episode
from scipy import stats

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.benchmarks.run_notes import RunDescription
from lemur_ray.report.policy_results import comparisons, policy_result
from lemur_ray.report.statistics import bootstrap_mean, detectable, holm, mcnemar, paired_difference, stratified_mean
from lemur_ray.report.tables import compare, rate_of, summarise

p_values = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def played(solved: list[bool], policy: str = "nano-chat", clusters: list[str] | None = None) -> list[Episode]:
    ends = [Outcome.SOLVED if hit else Outcome.FAILED for hit in solved]
    episodes = [episode(f"t{i}", end, policy=policy, turns=1) for i, end in enumerate(ends)]
    return episodes if clusters is None else [replace(e, cluster=c) for e, c in zip(episodes, clusters, strict=True)]


@given(p_values)
def test_holm_rejects_what_its_steps_reject(found: list[float]) -> None:
    adjusted = holm(found)
    assert all(1 >= a >= p for a, p in zip(adjusted, found, strict=True))
    for alpha in (0.01, 0.05, 0.2):
        rejected: set[int] = set()
        for rank, place in enumerate(sorted(range(len(found)), key=lambda i: found[i])):
            if (len(found) - rank) * found[place] > alpha:
                break
            rejected.add(place)
        assert {i for i, a in enumerate(adjusted) if a <= alpha} == rejected


def test_holm_of_a_published_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_a_true_difference_of_the_detectable_size_is_seen_four_times_of_five() -> None:
    n, apart = 400, 0.2
    size = detectable(apart / n)
    assert size is not None
    assert size == pytest.approx(2.8016 * (apart / n) ** 0.5, rel=1e-4)
    draws = np.random.default_rng(1).multinomial(n, [(apart + size) / 2, (apart - size) / 2, 1 - apart], size=4000)
    z = (draws[:, 0] - draws[:, 1]) / np.sqrt(draws[:, 0] + draws[:, 1])
    assert (z > stats.norm.ppf(0.975)).mean() == pytest.approx(0.8, abs=0.03)
    assert paired_difference([True, False], [True, False]).detectable is None


@pytest.mark.parametrize(("a", "b"), [(0, 0), (3, 9), (700, 811), (4000, 3800)])
def test_mcnemar_of_many_disagreements_is_exact(a: int, b: int) -> None:
    expected = stats.binomtest(min(a, b), a + b, 0.5).pvalue if a + b else 1.0
    assert mcnemar(a, b) == pytest.approx(expected, rel=1e-9)


def test_a_bootstrap_drawn_in_parts_is_the_one_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [float(i % 7) for i in range(101)]
    clusters = [i // 2 for i in range(101)]
    whole = [bootstrap_mean(values), bootstrap_mean(values, clusters)]
    monkeypatch.setattr("lemur_ray.report.statistics._DRAWN_AT_ONCE", 1000)
    assert [bootstrap_mean(values), bootstrap_mean(values, clusters)] == whole


def test_tasks_of_a_cluster_are_fewer_observations_than_they_are_tasks() -> None:
    rng = random.Random(2)
    clusters = [f"database {i // 20}" for i in range(400)]
    luck = {name: rng.random() < 0.5 for name in dict.fromkeys(clusters)}
    solved = [luck[c] if rng.random() < 0.9 else rng.random() < 0.5 for c in clusters]
    plain, by_cluster = (
        rate_of(episodes, lambda e: e.outcome is Outcome.SOLVED)
        for episodes in (played(solved), played(solved, clusters=clusters))
    )
    assert (plain.count, plain.n) == (by_cluster.count, by_cluster.n)
    widths = [rate.interval.high - rate.interval.low for rate in (plain, by_cluster)]
    assert widths[1] > 2.5 * widths[0]
    assert by_cluster.to_json()["interval"] == "wilson, clustered by cluster"
    other = [hit if rng.random() < 0.8 else not hit for hit in solved]
    loose = compare(played(solved), played(other, "b"))
    tight = compare(played(solved, clusters=clusters), played(other, "b", clusters))
    assert loose is not None
    assert tight is not None
    assert tight.test == "sign flips by cluster"
    assert (tight.n, tight.only_a, tight.difference) == (loose.n, loose.only_a, pytest.approx(loose.difference))


def test_a_macro_average_counts_kinds_alike_and_resamples_within_them() -> None:
    many, few = [1.0] * 90 + [0.0] * 10, [0.0, 1.0, 0.0, 0.0]
    value, bounds = stratified_mean([(many, range(100)), (few, range(4))])
    assert value == pytest.approx((0.9 + 0.25) / 2)
    spread = ((0.9 * 0.1 / 100 + 0.25 * 0.75 / 4) ** 0.5) / 2
    assert bounds.high - bounds.low == pytest.approx(2 * 1.96 * spread, rel=0.25)
    with pytest.raises(ValueError, match="no strata"):
        stratified_mean([])
    episodes = [replace(e, category="easy" if i < 3 else "hard") for i, e in enumerate(played([True] * 3 + [False]))]
    report = summarise(episodes)
    assert report.macro is not None
    assert report.macro[0] == pytest.approx(0.5)
    assert report.to_json()["macro"]["value"] == pytest.approx(0.5)
    assert summarise(played([True, False])).macro is None


def test_three_policies_are_compared_with_adjusted_p_values_and_two_without() -> None:
    ends = {"one": [True] * 40, "two": [True] * 30 + [False] * 10, "three": [False] * 40}
    runs = [policy_result(played(solved, policy), RunDescription()) for policy, solved in ends.items()]
    pairs = comparisons(runs)
    assert [pair.p_holm for pair in pairs] == holm([pair.difference.p_value for pair in pairs])
    assert [pair.p_holm for pair in comparisons(runs[:2])] == [None]
