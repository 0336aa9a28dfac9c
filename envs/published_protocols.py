"""How the published numbers of the built-in benchmarks were made: the protocols of ``published_protocols.toml``."""

import tomllib
from pathlib import Path
from typing import Any

from lemur_ray.benchmarks.run_notes import PublishedProtocol
from lemur_ray.benchmarks.table3 import ColumnProtocol

_DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def published_protocol(name: str, **code: Any) -> PublishedProtocol:
    """The protocol ``name``. ``code``: fields that are no text, such as ``further``."""
    return PublishedProtocol(**_fields(name), **code)


def column_protocol(name: str, **code: Any) -> ColumnProtocol:
    """The protocol ``name`` of a column of the paper's Table 3. ``code``: fields that are no text: ``options``,
    ``further``."""
    return ColumnProtocol(**_fields(name), **code)


def _fields(name: str) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in _DECLARED[name].items()}
