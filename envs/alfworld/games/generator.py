"""Generates ALFWorld-like games: number ``index`` of a split is a pure function of (partition, split, seed, index).

Index i has task type i mod 6, so any prefix is even over the types. Training games draw room and layout first and then
any goal of their split that the layout can pose; held-out and novel-object games walk through their split's goals in a
shuffled order, so that a short list already covers most of them. Every game is solvable: the goal object has a home
outside the target, the tool or lamp is there, and nothing can be used up."""

import functools
import random
from collections.abc import Collection
from dataclasses import dataclass, field

from envs.alfworld.games.catalogue import (
    FITS,
    LAMP,
    LAMP_SPOTS,
    LIGHT,
    ROOMS,
    ROOMS_OF_TASK,
    STOCK,
    TASK_LINES,
    TASK_TYPES,
    TWO,
)
from envs.alfworld.games.spec import GameSpec
from envs.alfworld.games.triples import SPLITS, Split, Triple, goals_in_room, partition

NUM_CLUTTER = (8, 14)
"""Minimum and maximum number of clutter things drawn for a game; one that fits nowhere is left out."""
_MAX_DRAWS = 1000


def draw_game(split: Split, seed: int, index: int, partition_seed: int = 0) -> GameSpec:
    """Generate game number ``index``, from 0, of a split; equal arguments give equal games. ``seed`` varies layouts and
    the order of goals; ``partition_seed`` alone decides which goals belong to which split: with equal ones, games of
    different splits are disjoint for any seeds. Raises ValueError for an unknown split or a negative index,
    RuntimeError if no draw gives a playable layout."""
    if split not in SPLITS:
        raise ValueError(f"split {split!r}: expected one of {', '.join(SPLITS)}")
    if index < 0:
        raise ValueError(f"game index {index}: expected 0 or more")
    task_type = TASK_TYPES[index % len(TASK_TYPES)]
    owned = partition(partition_seed)[split][task_type]
    name = f"{split} {seed} {index}" + (f" partition {partition_seed}" if partition_seed else "")
    rng = random.Random(f"alfworld game {name}")
    if split == "train":
        wanted: Collection[Triple] = owned
    else:
        order = _shuffled(owned, f"alfworld goals {split} {seed} {partition_seed} {task_type}")
        wanted = (order[index // len(TASK_TYPES) % len(order)],)
    pairs = frozenset((thing, target) for _, thing, target in wanted)
    rooms = [room for room in ROOMS_OF_TASK[task_type] if pairs & _possible(task_type, room)]
    for _ in range(_MAX_DRAWS):
        layout = _Layout(rng.choice(rooms), rng)
        furniture = frozenset(kind for kind, _ in layout.receptacles)
        if goals := [goal for goal in goals_in_room(task_type, layout.room, furniture) if goal in pairs]:
            thing, target = rng.choice(goals)
            return _furnish(layout, task_type, thing, target, origin=name)
    raise RuntimeError(f"no layout for game {name} in {_MAX_DRAWS} draws: goals {sorted(pairs)[:3]}")


@functools.lru_cache(maxsize=256)
def _shuffled(triples: tuple[Triple, ...], seed: str) -> tuple[Triple, ...]:
    return tuple(random.Random(seed).sample(triples, len(triples)))


@functools.lru_cache(maxsize=64)
def _possible(task_type: str, room: str) -> frozenset[tuple[str, str]]:
    return frozenset(goals_in_room(task_type, room, frozenset(ROOMS[room])))


@dataclass
class _Layout:
    """A room while it is furnished: its furniture, drawn at construction, and the things placed so far."""

    room: str
    rng: random.Random
    receptacles: list[tuple[str, str]] = field(default_factory=list)
    things: list[tuple[str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for kind, (fewest, most) in ROOMS[self.room].items():
            for number in range(self.rng.randint(fewest, most)):
                # ALFWorld calls a basin after the sink it belongs to and knows it by the word in its id.
                identity = f"{kind.removesuffix('Basin')}_bar_{number:02d}"
                self.receptacles.append((kind, f"{identity}_bar_{kind}" if kind.endswith("Basin") else identity))

    def homes(self, thing: str, avoid: str = "") -> list[str]:
        return [identity for kind, identity in self.receptacles if thing in FITS[kind] and kind != avoid]

    def put(self, thing: str, places: list[str]) -> None:
        number = sum(kind == thing for kind, _, _ in self.things)
        self.things.append((thing, f"{thing}_bar_{number:02d}_bar_o", self.rng.choice(places)))


def _furnish(layout: _Layout, task_type: str, thing: str, target: str, origin: str) -> GameSpec:
    """Place lamp (light goals), goal objects and clutter, and return the spec. No goal object starts at a target."""
    rng = layout.rng
    avoid = "" if task_type == LIGHT else target
    if task_type == LIGHT:
        layout.put(LAMP, [identity for kind, identity in layout.receptacles if kind in LAMP_SPOTS[layout.room]])
    for _ in range(2 if task_type == TWO else 1):
        layout.put(thing, layout.homes(thing, avoid))
    for _ in range(rng.randint(*NUM_CLUTTER)):
        clutter = rng.choice(STOCK[layout.room])
        if places := layout.homes(clutter, avoid if clutter == thing else ""):
            layout.put(clutter, places)
    words = rng.choice(TASK_LINES[task_type])
    return GameSpec(
        task_type=task_type,
        room=layout.room,
        task=words.format(object=thing.lower(), target=target.lower()),
        object=thing,
        target=target,
        receptacles=tuple(layout.receptacles),
        things=tuple(layout.things),
        origin=origin,
    )
