"""The specification of one generated game, in the small JSON form that a task contains."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class GameSpec:
    """A game. ``task``: its goal in words; ``object``, ``target``: classes of the thing and of its destination (or the
    lamp). Ids are ALFRED's (``Cabinet_bar_02``, ``Mug_bar_00_bar_o``), classes its CamelCase names."""

    task_type: str
    room: str
    task: str
    object: str
    target: str
    receptacles: tuple[tuple[str, str], ...]
    """(class, id) of every piece of furniture."""
    things: tuple[tuple[str, str, str], ...]
    """(class, id, id of the receptacle it starts in) of every small thing."""
    origin: str = ""
    """Source of the game for people: split, seed and index."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of ``to_json``. Raises ValueError that names unknown, missing or malformed fields."""
        known = set(cls.__dataclass_fields__)
        if unknown := set(value) - known:
            raise ValueError(f"game spec has unknown fields {sorted(unknown)}: expected {sorted(known)}")
        if missing := known - {"origin"} - set(value):
            raise ValueError(f"game spec lacks {sorted(missing)}")
        words = {name: value[name] for name in ("task_type", "room", "task", "object", "target")}
        if bad := [name for name, word in words.items() if not isinstance(word, str)]:
            raise ValueError(f"game spec: {bad} must be strings")
        return cls(
            **words,
            receptacles=_rows(value["receptacles"], 2, "receptacles"),
            things=_rows(value["things"], 3, "things"),
            origin=str(value.get("origin", "")),
        )


def _rows(value: Any, width: int, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"game spec: {name} is a {type(value).__name__}, expected a list of {width}-tuples of strings")
    rows = tuple(tuple(row) if isinstance(row, list | tuple) else (row,) for row in value)
    for row in rows:
        if len(row) != width or not all(isinstance(cell, str) for cell in row):
            raise ValueError(f"game spec: {row!r} in {name}, expected {width} strings")
    return rows
