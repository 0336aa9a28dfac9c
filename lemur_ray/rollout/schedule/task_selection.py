"""Which of a benchmark's tasks are played: named ones, and of those a sample over their categories.

A sample is proportional: of every category about as many as its share. It depends on ids, categories and a seed alone,
so every policy gets the same one, and a smaller sample is part of a larger one: going on with more plays nothing twice.
Who waited for a task that is left out waits for those before it. Knows no benchmark.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.task_dependencies import played_dependencies
from lemur_ray.rollout.evaluation_config import EvalConfig

_RANGE = re.compile(r"(\d*):(\d*)")


def select_tasks(tasks: Sequence[Task], config: EvalConfig[Any]) -> tuple[list[Task], Sequence[Task]]:
    """The tasks that are played, and those whose data the recipe stands for: all of them, so that episodes of a sample
    are episodes of the whole run; with ``--sample first`` those that are played, as it was before there were samples.

    Raises ValueError, OSError.
    """
    chosen = keep_dependencies(_chosen(tasks, config), tasks)
    return chosen, chosen if config.sample == "first" else tasks


def keep_dependencies(chosen: Sequence[Task], tasks: Sequence[Task]) -> list[Task]:
    """The chosen ones, each after those that the ones left out before it would have come after."""
    if len(chosen) == len(tasks):
        return list(chosen)
    there = {task.id for task in chosen}
    after = {task.id: task.after for task in tasks}
    return [replace(task, after=played_dependencies(task.id, after, there)) for task in chosen]


def _chosen(tasks: Sequence[Task], config: EvalConfig[Any]) -> list[Task]:
    chosen = named_tasks(tasks, config.tasks) if config.tasks else list(tasks)
    if not config.limit or len(chosen) <= config.limit:
        return chosen
    if config.sample == "first":
        return chosen[: config.limit]
    return sample_over_strata(chosen, config.limit, config.sample_seed)


def named_tasks(tasks: Sequence[Task], text: str, within: tuple[Path, ...] = ()) -> list[Task]:
    """Tasks by ids, places (``10:20``: from the eleventh to the twentieth) and ``@FILE`` of those, parted by commas.

    ``within``: the files that name this. Raises ValueError for an id that is not there, a range with nothing in it, a
    file that names itself; OSError for a file.
    """
    places = {task.id: place for place, task in enumerate(tasks)}
    wanted: set[int] = set()
    for word in filter(None, (word.strip() for word in text.split(","))):
        if word in places:
            wanted.add(places[word])
        elif word.startswith("@"):
            file = Path(word[1:]).expanduser().resolve()
            if file in within:
                raise ValueError(f"--tasks {word}: it names itself, in {within[-1]}: take that line out")
            lines = file.read_text(encoding="utf-8").splitlines()
            rows = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
            for row in rows:
                found = [task.id for task in named_tasks(tasks, row, (*within, file))] if row not in places else [row]
                wanted |= {places[task] for task in found}
        elif between := _RANGE.fullmatch(word):
            inside = range(len(tasks))[int(between[1] or 0) : int(between[2] or len(tasks))]
            if not inside:
                raise ValueError(f"--tasks {word}: no task stands there, there are {len(tasks)}")
            wanted |= set(inside)
        else:
            near = difflib.get_close_matches(word, list(places), n=1, cutoff=0.5) or list(places)[:1]
            raise ValueError(
                f"--tasks: no task {word!r} among {len(tasks)}, but for example {near}; give ids, places A:B, or @FILE"
            )
    if not wanted:
        raise ValueError(f"--tasks {text!r} names none of the {len(tasks)} tasks: give ids, places A:B, or @FILE")
    return [tasks[place] for place in sorted(wanted)]


def sample_over_strata(tasks: Sequence[Task], number: int, seed: int = 0) -> list[Task]:
    """``number`` of the tasks, of each category about its share, drawn by ``seed``; in their own order."""
    strata: dict[str, list[tuple[bytes, int]]] = defaultdict(list)
    for place, task in enumerate(tasks):
        drawn = hashlib.blake2b(f"{seed}|{task.benchmark}|{task.id}".encode(), digest_size=8).digest()
        strata[task.category].append((drawn, place))
    ranked = [
        ((rank + 0.5) / len(stratum), drawn, place)
        for stratum in strata.values()
        for rank, (drawn, place) in enumerate(sorted(stratum))
    ]
    return [tasks[place] for place in sorted(place for _, _, place in sorted(ranked)[:number])]
