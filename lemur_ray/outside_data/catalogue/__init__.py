"""Declares the paper's training data, Table 1 (instructions) and Table 8 (corpus), as far as it is public today, and
the data of benchmarks that the project does not implement: the sets of ``training.toml``.

Implemented benchmarks declare their own sources. An empty checksum means that none is published. Fetches nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

from lemur_ray.host.json_files import toml_beside
from lemur_ray.outside_data.source import DataSet, Stream, declared_sources

_DECLARED = toml_beside(__file__, "training.toml")["sets"]


def _filled(value: Any, row: str, folder: str) -> Any:
    """The value of a declaration, with {row} and {folder} in its texts replaced."""
    if isinstance(value, str):
        return value.replace("{row}", row).replace("{folder}", folder)
    if isinstance(value, dict):
        return {key: _filled(item, row, folder) for key, item in value.items()}
    return tuple(_filled(item, row, folder) for item in value) if isinstance(value, tuple) else value


def _sets(declared: Mapping[str, Any]) -> Iterator[DataSet]:
    for row, folder in declared.get("each", {"": ""}).items():
        one = _filled(declared, row, folder)
        shared = {"url": "", "size": 0, **{key: one[key] for key in ("licence", "terms") if key in one}}
        streams = tuple(Stream(**{**shared, **stream}) for stream in one.get("streams", ()))
        withdrawn, fields = one.get("withdrawn", ""), one.get("fields", {})
        yield DataSet(one["name"], one["about"], declared_sources(one), streams, withdrawn=withdrawn, fields=fields)


TRAINING: tuple[DataSet, ...] = tuple(one for declared in _DECLARED for one in _sets(declared))
STACK_LANGUAGES: Mapping[str, str] = next(one["each"] for one in _DECLARED if one["name"].startswith("the-stack"))
"""Rows of Table 8 and how The Stack names its folders; "Others" is any other folder."""
