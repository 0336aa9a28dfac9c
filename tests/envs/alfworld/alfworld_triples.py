"""Goals of generated games as (task type, object, target), to compare games with their split."""

from envs.alfworld.games.spec import GameSpec
from envs.alfworld.games.triples import Partition, Split, Triple


def triple(spec: GameSpec) -> Triple:
    return spec.task_type, spec.object, spec.target


def triples(partition: Partition, split: Split) -> frozenset[Triple]:
    return frozenset(goal for goals in partition[split].values() for goal in goals)
