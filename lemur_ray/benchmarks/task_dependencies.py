"""Dependencies of tasks in a selection: a dependency that is left out is replaced by its own dependencies."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

Id = TypeVar("Id", int, str)


def played_dependencies(task: Id, after: Mapping[Id, Sequence[Id]], there: Collection[Id]) -> tuple[Id, ...]:
    """Ids of the selected tasks that ``task`` depends on, directly or through tasks that are not selected. ``after``:
    task -> direct dependencies; ``there``: ids of the selected tasks."""
    nearest: dict[Id, None] = {}
    visited, stack = {task}, _last_first(after.get(task, ()))
    while stack:
        before = stack.pop()
        if before in there:
            nearest[before] = None
        elif before not in visited:
            visited.add(before)
            stack += _last_first(after.get(before, ()))
    return tuple(nearest)


def _last_first(ids: Iterable[Id]) -> list[Id]:
    return list(ids)[::-1]
