"""Rebuilds configuration dataclasses from stored JSON, and suggests known names for unknown ones."""

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Any, TypeVar, get_type_hints

from lemur_ray.config.data import SourceConfig

T = TypeVar("T")


def from_dict(config: type[T], value: dict[str, Any]) -> T:
    """Rebuild a dataclass from its ``asdict`` form. Raises ValueError for an unknown field, naming the nearest."""
    hints, out = get_type_hints(config), {}
    for name, item in value.items():
        if name not in hints:
            raise ValueError(f"{config.__name__} has no field {name!r}{did_you_mean(name, hints)}")
        out[name] = _revive(hints[name], name, item)
    return config(**out)


def _revive(hint: Any, name: str, item: Any) -> Any:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return from_dict(hint, item)
    if name == "sources":
        return tuple(from_dict(SourceConfig, entry) for entry in item)
    if isinstance(item, list):
        return tuple(tuple(entry) if isinstance(entry, list) else entry for entry in item)
    return item


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """End of an error message about an unknown name: ``: did you mean 'x'?`` if one is near; all known names."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return (f": did you mean {near[0]!r}?" if near else "") + f" (known: {', '.join(names)})"
