"""Division of all feasible goals, (task type, object, target) triples, among the splits of generated games.

Train and held-out games are disjoint because each split draws its goals from its own part.

- ``novel_object``: every triple whose object class is one of ``NOVEL_OBJECTS``;
- ``heldout``: of the other triples of each task type a fifth, drawn by the partition's seed, so that every remaining
  object class stays a goal object somewhere in training;
- ``train``: the rest."""

import functools
import random
from collections import Counter
from collections.abc import Mapping
from typing import Literal, get_args

from envs.alfworld.games.catalogue import (
    FITS,
    LAMP,
    LAMP_SPOTS,
    LIGHT,
    NEVER_TARGET,
    NOVEL_OBJECTS,
    ROOMS,
    ROOMS_OF_TASK,
    STOCK,
    TASK_TYPES,
    TREATABLE,
    TREATMENTS,
)

Split = Literal["train", "heldout", "novel_object"]
SPLITS: tuple[Split, ...] = get_args(Split)
Triple = tuple[str, str, str]
HELDOUT_SHARE = 0.2
Partition = Mapping[Split, Mapping[str, tuple[Triple, ...]]]
"""By split and task type, the sorted triples that games of that split may have as goals."""


@functools.lru_cache(maxsize=16)
def partition(seed: int = 0) -> Partition:
    """Divide all feasible goals among the splits: split -> task type -> triples. A pure function of ``seed``."""
    rng = random.Random(f"alfworld partition {seed}")
    known = {t: [triple for triple in feasible_triples(t) if triple[1] not in NOVEL_OBJECTS] for t in TASK_TYPES}
    goals_left = Counter(triple[1] for triples in known.values() for triple in triples)
    heldout: dict[str, tuple[Triple, ...]] = {}
    for task_type, triples in known.items():
        chosen: list[Triple] = []
        for triple in rng.sample(triples, len(triples)):
            if len(chosen) < round(HELDOUT_SHARE * len(triples)) and goals_left[triple[1]] > 1:
                chosen.append(triple)
                goals_left[triple[1]] -= 1
        heldout[task_type] = tuple(sorted(chosen))
    return {
        "train": {t: tuple(x for x in triples if x not in heldout[t]) for t, triples in known.items()},
        "heldout": heldout,
        "novel_object": {t: tuple(x for x in feasible_triples(t) if x[1] in NOVEL_OBJECTS) for t in TASK_TYPES},
    }


@functools.lru_cache(maxsize=8)
def feasible_triples(task_type: str) -> tuple[Triple, ...]:
    """Sorted (type, object class, target class) goals of a task type that some room can hold. KeyError if unknown."""
    pairs = {
        (thing, target)
        for room in ROOMS_OF_TASK[task_type]
        for thing, target in goals_in_room(task_type, room, frozenset(ROOMS[room]))
    }
    return tuple((task_type, thing, target) for thing, target in sorted(pairs))


@functools.lru_cache(maxsize=4096)
def goals_in_room(task_type: str, room: str, furniture: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Sorted (object class, target class) goals of a task type that are possible in a ``room`` with these ``furniture``
    classes; possibly none. The object must occur in the room, accept the task's treatment (clean, heat, cool) if there
    is one, and fit into some furniture other than the target."""
    if task_type == LIGHT:
        if not any(kind in furniture for kind in LAMP_SPOTS[room]):
            return ()
        return tuple((thing, LAMP) for thing in sorted(STOCK[room]) if _has_home(thing, furniture))
    treatment = TREATMENTS.get(task_type)
    targets = furniture - NEVER_TARGET - ({treatment.tool} if treatment else set())
    return tuple(
        (thing, target)
        for thing in sorted(STOCK[room])
        if treatment is None or thing in TREATABLE[treatment.verb]
        for target in sorted(targets)
        if thing in FITS[target] and _has_home(thing, furniture - {target})
    )


def _has_home(thing: str, furniture: frozenset[str]) -> bool:
    return any(thing in FITS[kind] for kind in furniture)
