"""Units of observation of a rate (episodes, tasks or clusters of tasks) and strata of a macro average.

Tasks that share a database, a template or a subject are not independent observations (Miller, arXiv 2411.00640). Knows
no interval and draws nothing."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from lemur_ray.agents.trajectory import Episode, Outcome

E = TypeVar("E", bound=Episode)
K = TypeVar("K", bound=Hashable)
Stratum = tuple[list[float], list[Hashable]]
"""Values of one stratum of a macro average, and the unit that each value belongs to."""


def grouped(episodes: Iterable[E], key: Callable[[E], K]) -> dict[K, list[E]]:
    """Episodes by ``key``, in the order of first appearance."""
    groups: dict[K, list[E]] = {}
    for episode in episodes:
        groups.setdefault(key(episode), []).append(episode)
    return groups


def cluster_of(episode: Episode) -> tuple[str, str, str]:
    """Identity of the cluster of tasks that an episode belongs to, for cluster-robust statistics. (family, cluster, "")
    with the benchmark's name before ``/`` as the family, so that a problem in six languages is one cluster; (benchmark,
    "", task) without a cluster."""
    benchmark, family = episode.key.benchmark, episode.key.benchmark.partition("/")[0]
    return (family, episode.cluster, "") if episode.cluster else (benchmark, "", episode.key.task)


def units_of(episodes: Sequence[Episode]) -> tuple[list[Hashable], str]:
    """The unit of each episode, and the kind of unit: ``cluster`` or ``task``. Tasks are the units if all episodes are
    of one cluster, or each cluster has one task."""
    tasks = [(e.key.benchmark, e.key.task) for e in episodes]
    clusters = [cluster_of(e) for e in episodes]
    if len(set(clusters)) in (1, len(set(tasks))):
        return list(tasks), "task"
    return list(clusters), "cluster"


def strata_of(episodes: Sequence[Episode]) -> dict[str, Stratum]:
    """Category -> success of its scored episodes, and their units; without categories that have no score. The units of
    a category that is a single cluster are its tasks."""
    kinds = grouped((e for e in episodes if e.outcome.scored), lambda e: e.category)
    return {name: (solved_or_not(kinds[name]), _within(kinds[name])) for name in sorted(kinds)}


def _within(kind: Sequence[Episode]) -> list[Hashable]:
    clusters = [cluster_of(e) for e in kind]
    return [*clusters] if len(set(clusters)) > 1 else units_of(kind)[0]


def solved_or_not(episodes: Sequence[Episode]) -> list[float]:
    """For each episode 1.0 if it was solved, else 0.0."""
    return [float(episode.outcome is Outcome.SOLVED) for episode in episodes]
