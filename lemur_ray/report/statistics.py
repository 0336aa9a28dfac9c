"""Uncertainty of rates: Wilson intervals, bootstrap means, paired comparisons.

Pure functions of counts and values; knows nothing of episodes. All intervals are two-sided. The choice between scipy
and own code is explained in docs/decisions/017-statistics.md."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np

_RESAMPLES, _FLIPS = 2_000, 10_000
_TAILS = ((1 - 0.95) / 2, 1 - (1 - 0.95) / 2)
"""Quantiles that bound a 95 % interval."""
_DRAWN_AT_ONCE = 2_000_000
"""Maximum number of indices that a bootstrap draws at once, to bound its memory."""


@dataclass(frozen=True)
class Interval:
    """A closed interval that holds the true value with the stated confidence."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def _normal_quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence}: expected a number between 0 and 1, for example 0.95")
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval (1927) of the proportion ``successes`` / ``n``; [0, 1] if ``n`` is 0. Raises ValueError
    unless 0 <= successes <= n and 0 < confidence < 1."""
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}: expected 0 <= successes <= n")
    if n == 0:
        return Interval(0.0, 1.0)
    return _score_interval(successes / n, n, confidence)


def _score_interval(share: float, n: float, confidence: float) -> Interval:
    z = _normal_quantile(confidence)
    spread = z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    # At 0 and 1 the bound is 0 or 1 exactly; floating point would miss it by a few ulps.
    low = 0.0 if share == 0 else max(0.0, centre - half)
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return Interval(low, high)


def clustered_wilson(hits: Sequence[bool], clusters: Sequence[object]) -> Interval:
    """95 % score interval of a proportion whose observations come in clusters, such as the epochs of one task. Wilson's
    interval at the effective sample size n / design effect, with the design effect from the variance between clusters
    (Dean and Pagano, Journal of Survey Statistics and Methodology 3, 2015), at most n. If all observations are equal,
    that variance is unknown: then the number of clusters. hits: each observation; clusters: the label of its cluster.
    Raises ValueError for unequal lengths."""
    if len(clusters) != len(hits):
        raise ValueError(f"{len(clusters)} cluster labels for {len(hits)} values: expected one label per value")
    if not hits:
        return Interval(0.0, 1.0)
    sums: dict[object, int] = {}
    sizes: dict[object, int] = {}
    for hit, cluster in zip(hits, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0) + hit
        sizes[cluster] = sizes.get(cluster, 0) + 1
    n, num_clusters, share = len(hits), len(sums), sum(hits) / len(hits)
    effective = float(num_clusters)
    if num_clusters > 1 and 0 < share < 1:
        squares = sum((sums[cluster] - share * sizes[cluster]) ** 2 for cluster in sums)
        variance = num_clusters / (num_clusters - 1) * squares / n**2
        effective = min(float(n), share * (1 - share) / variance) if variance else float(n)
    return _score_interval(share, max(1.0, effective), 0.95)


def bootstrap_mean(
    values: Sequence[float], clusters: Sequence[object] | None = None, *, seed: int = 0, resamples: int = _RESAMPLES
) -> Interval:
    """95 % percentile interval of the mean of ``values``, by resampling whole clusters (default: single values).
    ``clusters``: a label of each value; values of one label are not independent, for example several episodes of a
    task. The same seed gives the same interval. Raises ValueError on no values."""
    means = _bootstrap_means(values, clusters, seed, resamples)
    low, high = np.quantile(means, _TAILS)
    return Interval(float(low), float(high))


def _bootstrap_means(
    values: Sequence[float], clusters: Sequence[object] | None, seed: int, resamples: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if not values:
        raise ValueError("no values: a mean of nothing has no interval")
    labels = list(range(len(values))) if clusters is None else list(clusters)
    if len(labels) != len(values):
        raise ValueError(f"{len(labels)} clusters for {len(values)} values: expected one label per value")
    number = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    member = np.array([number[label] for label in labels])
    sums = np.bincount(member, weights=np.asarray(values, dtype=np.float64))
    sizes = np.bincount(member).astype(np.float64)
    random = np.random.default_rng(seed)
    means = np.empty(resamples)
    rows = max(1, _DRAWN_AT_ONCE // len(sums))  # the same draws as all at once, which may be gigabytes
    for start in range(0, resamples, rows):
        drawn = random.integers(len(sums), size=(min(rows, resamples - start), len(sums)))
        means[start : start + rows] = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    return means


Strata = Sequence[tuple[Sequence[float], Sequence[object]]]


def stratified_mean(strata: Strata) -> tuple[float, Interval]:
    """Unweighted mean of the means of strata (a macro average), and its percentile interval. Each stratum: values and
    the clusters they come in, resampled within the stratum alone; clusters that lie in several strata (a problem in
    several languages) are drawn in all of them at once. A stratum of one cluster has no spread that could be known, so
    it adds none. Raises ValueError on no strata or an empty one."""
    return mean_of_macros([strata])


def mean_of_macros(groups: Sequence[Strata]) -> tuple[float, Interval]:
    """Unweighted mean of several macro averages (``stratified_mean``) of independent groups, and its 95 % interval.
    Raises ValueError without a group, for a group without strata, and for an empty stratum."""
    if not groups or not all(groups):
        raise ValueError("no strata: a mean of nothing has no interval")
    drawn = [np.mean(_strata_means(strata, 10_007 * i), axis=0) for i, strata in enumerate(groups)]
    low, high = np.quantile(np.mean(drawn, axis=0), _TAILS)
    macros = [math.fsum(math.fsum(v) / len(v) for v, _ in strata) / len(strata) for strata in groups]
    return math.fsum(macros) / len(macros), Interval(float(low), float(high))


def _strata_means(strata: Strata, seed: int) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """The mean of every stratum in every resample."""
    labels = [label for _, clusters in strata for label in set(clusters)]
    if len(set(labels)) == len(labels):
        return [_bootstrap_means(v, c, seed + place, _RESAMPLES) for place, (v, c) in enumerate(strata)]
    number = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    sums, sizes = np.zeros((2, len(number), len(strata)))
    for place, (values, clusters) in enumerate(strata):
        for value, label in zip(values, clusters, strict=True):
            sums[number[label], place] += value
            sizes[number[label], place] += 1
    if not sizes.sum(axis=0).all():
        raise ValueError("a stratum without values: a mean of nothing has no interval")
    random, whole = np.random.default_rng(seed), sums.sum(axis=0) / sizes.sum(axis=0)
    parts = []
    rows = max(1, _DRAWN_AT_ONCE // len(number))
    for start in range(0, _RESAMPLES, rows):
        times = random.multinomial(len(number), np.full(len(number), 1 / len(number)), min(rows, _RESAMPLES - start))
        drawn, of = times @ sums, times @ sizes
        parts.append(np.where(of > 0, drawn / np.maximum(of, 1), whole))  # where none of a stratum was drawn, its mean
    return list(np.concatenate(parts).T)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several tests, in order, adjusted to bound the chance of any false rejection (Holm, 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def detectable(variance_of_mean: float) -> float | None:
    """The smallest true difference that a comparison detects with 80 % power at 95 % confidence: 2.8 standard errors,
    the sum of both z values (Miller, arXiv 2411.00640). None for a variance of 0."""
    if variance_of_mean <= 0:
        return None
    return (_normal_quantile(0.95) + NormalDist().inv_cdf(0.8)) * math.sqrt(variance_of_mean)


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p-value that two policies are equally good on the same tasks (Q. McNemar, 1947). ``only_a``
    counts the tasks that only the first solved, ``only_b`` those that only the second solved; tasks on which both agree
    carry no information. 1.0 without disagreement. Raises ValueError for a negative count."""
    if only_a < 0 or only_b < 0:
        raise ValueError(f"counts {only_a} and {only_b}: expected none below 0")
    n, k = only_a + only_b, min(only_a, only_b)
    term = tail = 1
    for i in range(k):
        term = term * (n - i) // (i + 1)
        tail += term
    return min(1.0, 2 * (tail / 2**n))


class PairedTest(StrEnum):
    """Tests that give the p-value of a paired difference; the values are the words of pages and of report.json."""

    MCNEMAR = "McNemar"
    FLIPS_BY_TASK = "sign flips by task"
    FLIPS_BY_CLUSTER = "sign flips by cluster"


@dataclass(frozen=True)
class PairedDifference:
    """Comparison of two policies on the ``n`` tasks that both were scored on. ``only_a``, ``only_b``: tasks that only
    the first or only the second solved. ``difference``: first rate minus second, with its ``interval``. ``test``:
    source of the p-value. ``detectable``: smallest difference that has 80 % power."""

    n: int
    only_a: int
    only_b: int
    difference: float
    interval: Interval
    p_value: float
    test: PairedTest = PairedTest.MCNEMAR
    detectable: float | None = None


def paired_difference(a: Sequence[bool], b: Sequence[bool]) -> PairedDifference:
    """Compare two policies by whether each solved a task. Raises ValueError without tasks or for unequal lengths. The
    95 % interval is the adjusted Wald interval for paired proportions (Agresti and Min, Statistics in Medicine 24,
    2005: half an observation is added to each of the four cells); the p-value is McNemar's exact one."""
    if len(a) != len(b):
        raise ValueError(f"{len(a)} outcomes against {len(b)}: expected the same tasks in the same order")
    if not a:
        raise ValueError("no common task: nothing to compare")
    only_a = sum(x and not y for x, y in zip(a, b, strict=True))
    only_b = sum(y and not x for x, y in zip(a, b, strict=True))
    n, z = len(a), _normal_quantile(0.95)
    total, left, right = n + 2, only_a + 0.5, only_b + 0.5
    centre = (left - right) / total
    half = z * math.sqrt(left + right - (left - right) ** 2 / total) / total
    interval = Interval(max(-1.0, centre - half), min(1.0, centre + half))
    apart, difference = (only_a + only_b) / n, (only_a - only_b) / n
    smallest = detectable((apart - difference**2) / n)
    return PairedDifference(n, only_a, only_b, difference, interval, mcnemar(only_a, only_b), detectable=smallest)


def paired_by_task(differences: Sequence[float], clusters: Sequence[object] | None = None) -> PairedDifference:
    """Compare two policies by one value per task, for tasks that were played several times or come in clusters.
    ``differences``: for each task, the first policy's share of solved episodes minus the second's. The 95 % interval is
    a bootstrap over tasks; the two-sided p-value is by random sign flips of tasks. Both are seeded. ``clusters``: label
    of each task; then whole clusters are drawn and flipped. Raises ValueError without tasks."""
    if not differences:
        raise ValueError("no common task: nothing to compare")
    values = np.asarray(differences, dtype=np.float64)
    sums, residuals = values, values - values.mean()
    if clusters is not None:
        number = {label: i for i, label in enumerate(dict.fromkeys(clusters))}
        member = np.array([number[label] for label in clusters])
        sums = np.bincount(member, weights=values).astype(np.float64)
        residuals = np.bincount(member, weights=residuals).astype(np.float64)
    observed = abs(values.sum())
    random, as_far = np.random.default_rng(0), 0
    for _ in range(_FLIPS):
        flipped = np.where(random.random(len(sums)) < 0.5, -sums, sums)
        as_far += bool(abs(flipped.sum()) >= observed - 1e-9)
    return PairedDifference(
        n=len(values),
        only_a=int((values > 0).sum()),
        only_b=int((values < 0).sum()),
        difference=float(values.mean()),
        interval=bootstrap_mean(list(map(float, values)), clusters),
        p_value=(as_far + 1) / (_FLIPS + 1),
        test=PairedTest.FLIPS_BY_TASK if clusters is None else PairedTest.FLIPS_BY_CLUSTER,
        detectable=detectable(float((residuals**2).sum()) / len(values) ** 2),
    )


def t_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float | None, float | None]:
    """(mean, low, high) of Student's interval of the mean of a few measurements; low and high are None for a single
    one. confidence: 0 to 1. Raises ZeroDivisionError for none."""
    n, mean = len(values), math.fsum(values) / len(values)
    if n < 2:
        return mean, None, None
    from scipy.special import stdtrit  # a quarter of a second that only the page of a mixture study needs

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(stdtrit(n - 1, 0.5 + confidence / 2)) * deviation / math.sqrt(n)
    return mean, mean - half, mean + half
