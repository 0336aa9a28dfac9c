"""Orders tasks that change what later tasks see: their dependencies, and the site copy that each is played on.

Tasks that depend on each other, directly or through others, form a chain. It must be played on one copy of the sites,
one epoch (one pass over all tasks) at a time."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


def read_order(file: Path) -> dict[int, tuple[int, ...]]:
    """Read a JSON file: task id -> ids that must end before it. Raises ValueError for other content, OSError."""
    try:
        return {int(task): tuple(map(int, before)) for task, before in json.loads(file.read_text()).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"--order {file}: expected an object of task id -> list of ids: {error}") from error


def in_order(ids: Sequence[int], after: Mapping[int, Sequence[int]]) -> Iterator[int]:
    """Yield the ids so that each follows its dependencies, otherwise in the given order. Dependencies that are not in
    ``ids`` are ignored. ``after``: id -> ids that it depends on. Raises ValueError on a cycle."""
    there, done, open_ = set(ids), set(), set()
    for first in ids:
        stack = [first]
        while stack:
            at = stack[-1]
            if at in done:
                stack.pop()
                continue
            open_.add(at)
            waiting = [one for one in after.get(at, ()) if one in there and one not in done]
            if circle := [one for one in waiting if one in open_]:
                raise ValueError(f"tasks {at} and {circle[0]} wait for each other")
            if waiting:
                stack.append(waiting[0])
                continue
            done.add(at)
            open_.discard(at)
            yield stack.pop()


def chains(ids: Sequence[int], after: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Map each id to the number of its chain, from 0 by first appearance. Dependencies not in ``ids`` are ignored.
    ``after``: id -> ids that it depends on."""
    first: dict[int, int] = {one: one for one in ids}

    def root(one: int) -> int:
        while first[one] != one:
            first[one] = first[first[one]]
            one = first[one]
        return one

    for one in ids:
        for before in after.get(one, ()):
            if before in first:
                first[root(one)] = root(before)
    numbers: dict[int, int] = {}
    return {one: numbers.setdefault(root(one), len(numbers)) for one in ids}


@dataclass(frozen=True)
class Spread:
    """Distribution of chains (tasks that depend on each other) over site copies. ``copy_of``: task id -> number (from
    0) of a copy of its epoch; ``lanes``: number of epochs that run at once, each on different copies."""

    copy_of: Mapping[int, int]
    lanes: int


def spread(ids: Sequence[int], after: Mapping[int, Sequence[int]], num_copies: int) -> Spread:
    """Distribute the chains of tasks over ``num_copies`` site copies: the longest first, each to the copy with the
    fewest tasks. An epoch uses no more copies than shorten it; the remaining ones serve other epochs at the same time.
    ``after``: task id -> ids that it depends on."""
    chain_of = chains(ids, after)
    lengths = Counter(chain_of.values())
    taken = min(num_copies, len(ids) // max(lengths.values())) if ids else 1
    load = [0] * taken
    copy_of: dict[int, int] = {}
    for chain, length in lengths.most_common():
        copy_of[chain] = min(range(taken), key=lambda one: (load[one], one))
        load[copy_of[chain]] += length
    return Spread({one: copy_of[chain_of[one]] for one in ids}, num_copies // taken)
