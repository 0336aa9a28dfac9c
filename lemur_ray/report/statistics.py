"""How sure a rate is: Wilson intervals, bootstrap means, paired comparisons.

Pure functions of counts and values; knows nothing of episodes. All intervals are two-sided. What of this scipy has, and
why some of it is ours, is in docs/decisions/017-statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np


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
    """Score interval of a proportion (E. B. Wilson, 1927). With ``n`` 0 nothing is known: [0, 1]."""
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
    # At 0 and 1 the bound is 0 or 1 exactly; floating point would leave it a few ulps beside.
    low = 0.0 if share == 0 else max(0.0, centre - half)
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return Interval(low, high)


def clustered_wilson(hits: Sequence[bool], clusters: Sequence[object], confidence: float = 0.95) -> Interval:
    """Score interval of a proportion whose observations come in clusters, such as the epochs of one task.

    Wilson's interval at the effective sample size n / design effect, with the design effect from the variance between
    clusters (Dean and Pagano, Journal of Survey Statistics and Methodology 3, 2015). Never more than n; the number of
    clusters where all observations are alike, since then they say nothing of how alike a cluster's are.
    """
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
    return _score_interval(share, max(1.0, effective), confidence)


def bootstrap_mean(
    values: Sequence[float],
    clusters: Sequence[object] | None = None,
    *,
    seed: int = 0,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Interval:
    """Percentile interval of the mean of ``values``, by resampling whole clusters (default: single values).

    ``clusters`` names what belongs together, for example the task of each episode where a task was played more than
    once: such episodes are not independent. The same seed gives the same interval. Raises ValueError on no values.
    """
    if not values:
        raise ValueError("no values: a mean of nothing has no interval")
    labels = list(range(len(values))) if clusters is None else list(clusters)
    if len(labels) != len(values):
        raise ValueError(f"{len(labels)} clusters for {len(values)} values: expected one label per value")
    number = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    member = np.array([number[label] for label in labels])
    sums = np.bincount(member, weights=np.asarray(values, dtype=np.float64))
    sizes = np.bincount(member).astype(np.float64)
    drawn = np.random.default_rng(seed).integers(len(sums), size=(resamples, len(sums)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high))


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p-value that two policies are equally good on the same tasks (Q. McNemar, 1947).

    ``only_a`` counts the tasks that only the first solved, ``only_b`` those that only the second solved; tasks on
    which both agree carry no information. 1.0 where there is no disagreement.
    """
    if only_a < 0 or only_b < 0:
        raise ValueError(f"counts {only_a} and {only_b}: expected none below 0")
    n, k = only_a + only_b, min(only_a, only_b)
    tail = sum(math.comb(n, i) for i in range(k + 1)) / 2**n
    return min(1.0, 2 * tail)


@dataclass(frozen=True)
class PairedDifference:
    """Two policies on the tasks that both were scored on; ``difference`` is the first rate minus the second.

    ``n``: tasks. ``test``: where the p-value comes from.
    """

    n: int
    only_a: int
    only_b: int
    difference: float
    interval: Interval
    p_value: float
    test: str = "McNemar"


def paired_difference(a: Sequence[bool], b: Sequence[bool], confidence: float = 0.95) -> PairedDifference:
    """Compare two policies task by task.

    The interval is the adjusted Wald interval for paired proportions (Agresti and Min, Statistics in Medicine 24,
    2005: half an observation is added to each of the four cells); the p-value is McNemar's exact one.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} outcomes against {len(b)}: expected the same tasks in the same order")
    if not a:
        raise ValueError("no common task: nothing to compare")
    only_a = sum(x and not y for x, y in zip(a, b, strict=True))
    only_b = sum(y and not x for x, y in zip(a, b, strict=True))
    n, z = len(a), _normal_quantile(confidence)
    total, left, right = n + 2, only_a + 0.5, only_b + 0.5
    centre = (left - right) / total
    half = z * math.sqrt(left + right - (left - right) ** 2 / total) / total
    interval = Interval(max(-1.0, centre - half), min(1.0, centre + half))
    return PairedDifference(n, only_a, only_b, (only_a - only_b) / n, interval, mcnemar(only_a, only_b))


def paired_by_task(
    differences: Sequence[float], *, seed: int = 0, resamples: int = 10_000, confidence: float = 0.95
) -> PairedDifference:
    """Compare two policies of which at least one played tasks several times: one value per task.

    ``differences``: of each task, the first policy's share of solved episodes minus the second's. The interval is a
    bootstrap over tasks; the p-value flips the sign of each task's difference at random, as chance would if the two
    were equally good. Both are from the seed.
    """
    if not differences:
        raise ValueError("no common task: nothing to compare")
    values = np.asarray(differences, dtype=np.float64)
    observed = abs(values.sum())
    random, as_far = np.random.default_rng(seed), 0
    for _ in range(resamples):
        flipped = np.where(random.random(len(values)) < 0.5, -values, values)
        as_far += bool(abs(flipped.sum()) >= observed - 1e-9)
    return PairedDifference(
        n=len(values),
        only_a=int((values > 0).sum()),
        only_b=int((values < 0).sum()),
        difference=float(values.mean()),
        interval=bootstrap_mean(list(map(float, values)), seed=seed, confidence=confidence),
        p_value=(as_far + 1) / (resamples + 1),
        test="sign flips by task",
    )


def t_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float | None, float | None]:
    """(mean, low, high) of Student's interval of the mean of a few measurements; no interval for a single one."""
    n, mean = len(values), math.fsum(values) / len(values)
    if n < 2:
        return mean, None, None
    from scipy.special import stdtrit  # a quarter of a second that only the page of a mixture study needs

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(stdtrit(n - 1, 0.5 + confidence / 2)) * deviation / math.sqrt(n)
    return mean, mean - half, mean + half
