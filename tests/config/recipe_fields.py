"""The fields of a configuration by their dotted names."""

import dataclasses
from collections.abc import Iterator
from typing import Any


def fields_of(config: Any, prefix: str = "") -> Iterator[str]:
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from fields_of(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"
