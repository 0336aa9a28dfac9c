"""Validation of the tasks that a benchmark yields, before anything is played. Errors name benchmark and task."""

import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from lemur_ray.agents.trajectory import Task

MOST = 1_000_000
"""Maximum number of tasks; a benchmark that yields more is taken as endless"""
_TEXTS = {"benchmark": True, "id": True, "env_id": True, "category": False, "cluster": False}
"""Name of a task's text field -> whether the text must not be empty"""


def validated_tasks(name: str, load: Callable[[], Iterable[Task]], most: int | None = None) -> Iterator[Task]:
    """Yield the tasks of ``load`` lazily, at most ``most`` (None: all), each validated. Raises ValueError with the
    benchmark's ``name`` and the task. A ValueError or OSError of ``load``, which explains by contract what is missing,
    passes unchanged; other errors of it become a ValueError."""
    tasks = _made(name, load)
    for place, task in enumerate(tasks if most is None else islice(tasks, most)):
        if place == MOST:
            raise ValueError(f"{name}: it has made {MOST:,} tasks; what makes tasks without end has a default_limit")
        yield validate_task(name, place, task)


def _made(name: str, load: Callable[[], Iterable[Task]]) -> Iterator[Task]:
    try:
        tasks = load()
        if not isinstance(tasks, Iterable):
            raise ValueError(f"{name}: its load answered {type(tasks).__name__}, expected tasks to go through")
        yield from tasks
    except (ValueError, OSError):
        raise
    except SystemExit as error:  # an installed package would exit the process silently
        message = f"{name}: its tasks cannot be loaded: it asked the process to end ({error.code})"
        raise ValueError(message) from error
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
        raise ValueError(f"{name}: its tasks cannot be loaded: {reason}") from error


def validate_task(name: str, place: int, task: Any) -> Task:
    """Check a task and return it with ``after`` as a tuple. ``place``: its position, from 0, for the error. Raises
    ValueError with the reason if invalid."""
    if not isinstance(task, Task):
        raise ValueError(f"{name}: its task {place} is a {type(task).__name__}, expected a lemur_ray Task")
    for field, must_say in _TEXTS.items():
        value = getattr(task, field)
        if not isinstance(value, str) or (must_say and not value):
            expected = "a text that is not empty" if must_say else "a text"
            raise ValueError(f"{name}: task {_called(task, place)}: {field} is {_shown(value)}, expected {expected}")
    turns = task.max_turns
    if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
        raise ValueError(f"{name}: task {task.id}: max_turns is {_shown(turns)}, expected a whole number, 1 or more")
    if isinstance(task.after, str) or not all(isinstance(one, str) for one in task.after):
        raise ValueError(f"{name}: task {task.id}: after is {_shown(task.after)}, expected ids of tasks")
    if isinstance(task.lanes, bool) or not isinstance(task.lanes, int) or task.lanes < 0:
        raise ValueError(f"{name}: task {task.id}: lanes is {_shown(task.lanes)}, expected a whole number, 0 or more")
    try:
        fault = _fault(task.options, "options") if isinstance(task.options, Mapping) else "options are no mapping"
    except RecursionError:
        fault = "options are nested too deeply"
    if fault:
        raise ValueError(f"{name}: task {task.id}: {fault}")
    return task if isinstance(task.after, tuple) else replace(task, after=tuple(task.after))


def _fault(value: Any, where: str) -> str:
    """Message about the first part of ``value`` that is no JSON value; empty: none. A tuple counts as a list.
    ``where``: name of the value in the message."""
    if value is None or isinstance(value, str | bool | int):
        return ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{where} is {value}, which JSON has not"
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                return f"{where} has the key {_shown(key)}, expected texts as keys"
            if fault := _fault(inner, f"{where}[{key!r}]"):
                return fault
        return ""
    if isinstance(value, list | tuple):
        faults = (_fault(inner, f"{where}[{place}]") for place, inner in enumerate(value))
        return next((fault for fault in faults if fault), "")
    return f"{where} is {_shown(value)}, expected a JSON value"


def _called(task: Task, place: int) -> str:
    return task.id if isinstance(task.id, str) and task.id else f"{place} (from 0)"


def _shown(value: Any) -> str:
    return f"{str(value)[:40]!r} ({type(value).__name__})"
