"""Selection of a benchmark's tasks: by id or position, and a sample stratified by category.

A sample has the same share of every category. It depends on ids, categories and a seed alone, so every policy gets the
same one; a smaller sample is part of a larger one, so a larger run plays nothing twice. A task that must follow an
omitted task (``Task.after``) follows the predecessors of that one instead."""

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
    """Returns (tasks to play, tasks whose data the recipe hash covers): ``--tasks`` selects first, then ``--limit`` and
    ``--sample``. The hash covers all tasks, so that a sample's episodes count for the whole run; with ``--sample
    first`` only those to play. Raises ValueError for a bad selection, OSError for an unreadable file."""
    named = named_tasks(tasks, config.tasks) if config.tasks else list(tasks)
    if config.limit and len(named) > config.limit:
        is_first = config.sample == "first"
        named = named[: config.limit] if is_first else sample_over_strata(named, config.limit, config.sample_seed)
    chosen = keep_dependencies(named, tasks)
    return chosen, chosen if config.sample == "first" else tasks


def keep_dependencies(chosen: Sequence[Task], tasks: Sequence[Task]) -> list[Task]:
    """The chosen tasks; predecessors that were not chosen are replaced by their own predecessors (``Task.after``)."""
    if len(chosen) == len(tasks):
        return list(chosen)
    names = {task.id for task in chosen}
    after = {task.id: task.after for task in tasks}
    return [replace(task, after=played_dependencies(task.id, after, names)) for task in chosen]


def named_tasks(tasks: Sequence[Task], text: str, within: tuple[Path, ...] = ()) -> list[Task]:
    """Tasks that ``text``, separated by commas, selects, in the order of ``tasks``: ids, ranges of positions from 0
    (``10:20`` without 20), ``@FILE`` with such lines. ``within``: the files that led to ``text``. Raises ValueError for
    an unknown id, an empty selection or a file that includes itself, OSError for a file that cannot be read."""
    positions = {task.id: position for position, task in enumerate(tasks)}
    wanted: set[int] = set()
    for word in filter(None, (word.strip() for word in text.split(","))):
        if word in positions:
            wanted.add(positions[word])
        elif word.startswith("@"):
            file = Path(word[1:]).expanduser().resolve()
            if file in within:
                raise ValueError(f"--tasks {word}: it names itself, in {within[-1]}: take that line out")
            lines = file.read_text(encoding="utf-8").splitlines()
            rows = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
            for row in rows:
                is_id = row in positions
                ids = [row] if is_id else [task.id for task in named_tasks(tasks, row, (*within, file))]
                wanted |= {positions[task] for task in ids}
        elif between := _RANGE.fullmatch(word):
            indices = range(len(tasks))[int(between[1] or 0) : int(between[2] or len(tasks))]
            if not indices:
                raise ValueError(f"--tasks {word}: no task in that range: there are {len(tasks)}")
            wanted |= set(indices)
        else:
            near = difflib.get_close_matches(word, list(positions), n=1, cutoff=0.5) or list(positions)[:1]
            raise ValueError(
                f"--tasks: no task {word!r} among {len(tasks)}, but for example {near}; give ids, places A:B, or @FILE"
            )
    if not wanted:
        raise ValueError(f"--tasks {text!r} names none of the {len(tasks)} tasks: give ids, places A:B, or @FILE")
    return [tasks[position] for position in sorted(wanted)]


def sample_over_strata(tasks: Sequence[Task], number: int, seed: int = 0) -> list[Task]:
    """A random sample of ``number`` tasks, each category in proportion, in the order of ``tasks``; all tasks if there
    are fewer. Equal ``seed`` and tasks give the same sample, and a smaller sample is part of a larger one."""
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
