"""What counts as one observation of a rate: an episode, all episodes of a task, or a cluster of tasks; and what counts
alike in an average of averages.

Tasks that share a database, a template or a subject are fewer observations than they are tasks (Miller, arXiv
2411.00640). Knows no interval and draws nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from lemur_ray.agents.trajectory import Episode, Outcome

Stratum = tuple[list[float], list[Hashable]]
"""Values of one of several kinds that count alike, and the unit that each value belongs to."""


def cluster_of(episode: Episode) -> tuple[str, str, str]:
    """What an episode has in common with those it is not independent of: its cluster, or else its task.

    Benchmarks of a family share clusters: a problem in six languages is one.
    """
    benchmark, family = episode.key.benchmark, episode.key.benchmark.partition("/")[0]
    return (family, episode.cluster, "") if episode.cluster else (benchmark, "", episode.key.task)


def units_of(episodes: Sequence[Episode]) -> tuple[list[Hashable], str]:
    """The unit that each episode belongs to, and what units are: ``cluster`` or ``task``.

    Where all episodes are of one cluster, what is said is said of that cluster, and its tasks are the units; where each
    cluster holds one task, it is that task.
    """
    tasks = [(e.key.benchmark, e.key.task) for e in episodes]
    clusters = [cluster_of(e) for e in episodes]
    if len(set(clusters)) in (1, len(set(tasks))):
        return list(tasks), "task"
    return list(clusters), "cluster"


def strata_of(episodes: Sequence[Episode]) -> dict[str, Stratum]:
    """By category, whether each scored episode was solved, and its unit within the category; categories that have any.

    A category that is one cluster is made of its tasks.
    """
    kinds: dict[str, list[Episode]] = {}
    for episode in episodes:
        if episode.outcome.scored:
            kinds.setdefault(episode.category, []).append(episode)
    return {name: (solved_or_not(kinds[name]), _within(kinds[name])) for name in sorted(kinds)}


def _within(kind: Sequence[Episode]) -> list[Hashable]:
    clusters = [cluster_of(e) for e in kind]
    return [*clusters] if len(set(clusters)) > 1 else units_of(kind)[0]


def solved_or_not(episodes: Sequence[Episode]) -> list[float]:
    """1 for each that was solved, 0 for each that was not."""
    return [float(episode.outcome is Outcome.SOLVED) for episode in episodes]
