"""What one observation is, by benchmarks' own clusters, and the numbers by formulas written here a second time."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_samples import episode

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.report.samples import sample_rates, variance_parts
from lemur_ray.report.statistics import mean_of_macros, stratified_mean
from lemur_ray.report.strata import cluster_of, strata_of, units_of
from lemur_ray.report.tables import compare, is_solved, rate_of, summarise


def played(task: str, solved: bool, cluster: str = "", benchmark: str = "mmlu", **more: object) -> Episode:
    end = Outcome.SOLVED if solved else Outcome.FAILED
    one = episode(task, end, benchmark=benchmark, turns=1, **more)  # type: ignore[arg-type]
    return replace(one, cluster=cluster)


def in_clusters(seed: int, sizes: list[int]) -> list[Episode]:
    rng = random.Random(seed)
    return [
        played(f"{c}/{i}", rng.random() < luck, f"c{c}", category=f"kind {c % 3}")
        for c, (size, luck) in enumerate((size, rng.random()) for size in sizes)
        for i in range(size)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_an_interval_by_clusters_is_wilson_s_at_the_sample_size_that_clustered_standard_errors_leave(seed: int) -> None:
    episodes = in_clusters(seed, [3, 9, 14, 6, 20, 1, 8, 11, 5, 17])
    rate = rate_of(episodes, is_solved)
    y = np.array([is_solved(e) for e in episodes], dtype=float)
    x = np.ones((len(y), 1))
    names = [e.cluster for e in episodes]
    mean = float(np.linalg.lstsq(x, y, rcond=None)[0][0])
    # The sandwich of a regression on a constant, with G/(G-1) as in Stata and R's sandwich (Liang and Zeger, 1986).
    groups = [np.flatnonzero([n == name for n in names]) for name in dict.fromkeys(names)]
    bread = np.linalg.inv(x.T @ x)
    scores = [x[g].T @ (y[g] - mean) for g in groups]
    meat = sum(np.outer(score, score) for score in scores)
    variance = float((bread @ meat @ bread)[0, 0]) * len(groups) / (len(groups) - 1)
    n = min(len(y), mean * (1 - mean) / variance)
    z = 1.959963984540054
    # Wilson's bounds are where (p - mean)^2 = z^2 p (1 - p) / n.
    low, high = sorted(np.roots([1 + z * z / n, -2 * mean - z * z / n, mean * mean]))
    assert (rate.interval.low, rate.interval.high) == pytest.approx((low, high), abs=1e-9)
    assert rate.by == "cluster"


def test_of_one_cluster_tasks_are_the_observations_and_a_cluster_of_one_task_is_that_task() -> None:
    subject = [played(str(i), i < 6, "anatomy") for i in range(20)]
    plain = [replace(e, cluster="") for e in subject]
    assert rate_of(subject, is_solved).interval == rate_of(plain, is_solved).interval
    own = [replace(e, cluster=e.key.task) for e in subject]
    assert units_of(own)[1] == "task"
    other = [replace(e, outcome=Outcome.FAILED, score=0.0) for e in subject]
    for a, b in ((subject, other), (own, [replace(e, cluster=e.key.task) for e in other])):
        found = compare(a, b)
        assert found is not None
        assert (found.test, found.only_a) == ("McNemar", 6)


def test_a_kind_that_is_one_cluster_is_resampled_by_its_tasks_in_a_macro_average() -> None:
    files = [
        played(f"{f}/{i}", i < 3 + f, f"file {f}", "bbh/cot", category=f"file {f}") for f in range(4) for i in range(25)
    ]
    report = summarise(files)
    assert report.macro is not None
    value, bounds = report.macro
    shares = np.array([3, 4, 5, 6]) / 25
    assert value == pytest.approx(shares.mean())
    spread = float(np.sqrt((shares * (1 - shares) / 25).sum())) / 4
    assert bounds.high - bounds.low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    by_file = {group.name: group.success for group in report.categories}
    assert by_file["file 0"].clustered is None, "within a file, its questions are the observations"
    assert report.overall.success.by == "cluster"


def test_a_problem_in_several_languages_is_drawn_in_all_of_them_at_once() -> None:
    rng = random.Random(3)
    hard = {i: rng.random() for i in range(120)}
    episodes = [
        played(f"{lang}/{i}", luck < 0.4, f"HumanEval_{i}", f"multipl_e/{lang}", category=lang)
        for lang in ("cpp", "java", "php", "sh")
        for i, luck in hard.items()
    ]
    assert cluster_of(episodes[0]) == cluster_of(episodes[120])
    strata = [*strata_of(episodes).values()]
    value, bounds = stratified_mean(strata)
    share = sum(luck < 0.4 for luck in hard.values()) / 120
    assert value == pytest.approx(share)
    # Every language says the same: four of them are no more than one.
    spread = (share * (1 - share) / 120) ** 0.5
    assert bounds.high - bounds.low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    apart, alone = stratified_mean([(v, [(i, u) for u in units]) for i, (v, units) in enumerate(strata)])
    assert apart == pytest.approx(value)
    assert alone.high - alone.low == pytest.approx((bounds.high - bounds.low) / 2, rel=0.15)


def test_a_mean_of_macro_averages_counts_each_alike() -> None:
    micro = [([1.0] * 30 + [0.0] * 70, list(range(100)))]
    macro = [([1.0] * 9 + [0.0], list(range(10))), ([1.0, 0.0] * 20, list(range(40)))]
    value, bounds = mean_of_macros([micro, macro])
    assert value == pytest.approx((0.3 + (0.9 + 0.5) / 2) / 2)
    variance = (0.3 * 0.7 / 100 + (0.9 * 0.1 / 10 + 0.25 / 40) / 4) / 4
    assert bounds.high - bounds.low == pytest.approx(2 * 1.96 * variance**0.5, rel=0.1)
    with pytest.raises(ValueError, match="mean of nothing"):
        mean_of_macros([micro, []])


def test_the_variance_of_a_rate_is_parted_into_that_of_tasks_and_that_of_samples() -> None:
    draw = np.random.default_rng(0)
    p = draw.beta(0.8, 1.2, size=20_000)
    found = variance_parts([(5, int(c)) for c in draw.binomial(5, p)])
    assert found["of_tasks"] == pytest.approx(p.var(), rel=0.03)
    assert found["of_samples"] == pytest.approx((p * (1 - p)).mean(), rel=0.03)
    # With as many samples of each task, the standard error is that of tasks and a fifth of that of samples.
    whole = (found["of_tasks"] + found["of_samples"] / 5) / 20_000
    assert found["standard_error"] ** 2 == pytest.approx(whole)
    assert variance_parts([(3, 1)]) == {}
    twice = [played(f"t{i}", (i + n) % 3 > 0, epoch=n) for i in range(9) for n in range(2)]
    assert sample_rates(twice)["samples"]["variance"].keys() == found.keys()


@pytest.mark.parametrize(
    ("name", "clusters"),
    [("mmlu", 29), ("bbh/cot", 27), ("spider", 10), ("multipl_e/cpp", 161), ("alfworld/valid_unseen", 47)],
)
def test_benchmarks_say_which_tasks_have_something_in_common(name: str, clusters: int, data_dir: Path) -> None:
    benchmark = find(name)
    data = data_dir / "bench" if name != "alfworld/valid_unseen" else data_dir
    tasks = list(benchmark.load(benchmark.options(), EvaluationRequest(data)))
    assert len({benchmark.details.cluster(task) for task in tasks}) == clusters
    assert all(benchmark.details.cluster(task) for task in tasks)


def test_stored_kinds_of_tasks_have_clusters_beside_their_tasks(data_dir: Path) -> None:
    """What their tasks are is frozen by recipe hashes and golden tests; their episodes name a cluster all the same."""
    sql, house = find("intercode/sql"), find("mint/alfworld")
    tasks = list(sql.load(sql.options(), EvaluationRequest(data_dir)))
    assert {task.cluster for task in tasks} == {""}
    assert len({sql.details.cluster(task) for task in tasks}) == 20
    games = list(house.load(house.options(), EvaluationRequest(data_dir)))
    assert len({house.details.cluster(task) for task in games}) == 47
