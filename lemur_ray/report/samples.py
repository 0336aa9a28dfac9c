"""Rates over several samples of a task: pass@k (at least one of k is right) and pass^k (all k are right).

Both are averages over tasks of unbiased estimates from n samples of which c are right, with an interval by resampling
tasks. Only tasks with at least k scored samples are counted."""

import math
from collections.abc import Iterable
from typing import Any

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.report.statistics import bootstrap_mean

KS = (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 200)
"""Values of k in a report, besides the number of samples itself."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate that at least one of k samples is right, from ``c`` right ones of ``n``: 1 - C(n-c, k) / C(n,
    k) (Chen et al. 2021, arXiv 2107.03374). Raises ValueError unless 0 <= c <= n and 1 <= k <= n."""
    _check(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate that all of k samples are right, from ``c`` right ones of ``n``: C(c, k) / C(n, k) (Yao et al.
    2024, arXiv 2406.12045). Raises ValueError unless 0 <= c <= n and 1 <= k <= n."""
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def _check(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"{c} of {n} samples, k {k}: expected 0 <= c <= n and 1 <= k <= n")


def variance_parts(counts: Iterable[tuple[int, int]]) -> dict[str, float]:
    """Variance of a success rate between tasks and between samples, from (samples, solved) of each task. Analysis of
    variance (Miller, arXiv 2411.00640, 3.1): ``of_samples`` is the mean variance within a task, ``of_tasks`` the
    variance of tasks' means less what samples add to it. More samples of a task lower the standard error to
    ``standard_error_of_tasks`` and no further. Nothing for fewer than two tasks with two samples each."""
    known = [(n, c) for n, c in counts if n > 1]
    if len(known) < 2:
        return {}
    means = [c / n for n, c in known]
    mean = math.fsum(means) / len(known)
    within = math.fsum(n * m * (1 - m) / (n - 1) for (n, _), m in zip(known, means, strict=True)) / len(known)
    of_means = math.fsum((m - mean) ** 2 for m in means) / (len(known) - 1)
    between = max(0.0, of_means - within * math.fsum(1 / n for n, _ in known) / len(known))
    return {
        "of_tasks": between,
        "of_samples": within,
        "standard_error": math.sqrt(of_means / len(known)),
        "standard_error_of_tasks": math.sqrt(between / len(known)),
    }


def single_turn_sample_rates(episodes: Iterable[Episode]) -> dict[str, Any]:
    """``sample_rates`` (pass@k and pass^k) if no episode has more than one turn, else an empty dict."""
    every = list(episodes)
    single = all(len(episode.trajectory.steps) <= 1 for episode in every)
    return sample_rates(every) if single else {}


def sample_rates(episodes: Iterable[Episode]) -> dict[str, Any]:
    """``{"samples": ...}``: mean pass@k and pass^k over tasks with 95 % intervals, by k, and ``variance_parts``. An
    empty dict for one epoch or no scored episode."""
    counts: dict[str, list[int]] = {}
    epochs = 1
    for episode in episodes:
        epochs = max(epochs, episode.key.epoch + 1)
        if episode.outcome.scored:
            of_task = counts.setdefault(episode.key.task, [0, 0])
            of_task[0] += 1
            of_task[1] += episode.outcome is Outcome.SOLVED
    if epochs == 1 or not counts:
        return {}
    rates: dict[str, Any] = {"epochs": epochs, "tasks": len(counts)}
    for name, estimate in (("pass@k", pass_at_k), ("pass^k", pass_hat_k)):
        rates[name] = {}
        for k in sorted({*(k for k in KS if k < epochs), epochs}):
            values = [estimate(n, c, k) for n, c in counts.values() if n >= k]
            if values:
                interval = bootstrap_mean(values)
                mean = math.fsum(values) / len(values)
                rates[name][str(k)] = {"value": mean, "low": interval.low, "high": interval.high, "n": len(values)}
    if parts := variance_parts((n, c) for n, c in counts.values()):
        rates["variance"] = parts
    return {"samples": rates}
