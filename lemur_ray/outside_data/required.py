"""Paths of files that a benchmark reads, or an error with the command that fetches them. Knows no benchmark."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from lemur_ray.outside_data.source import MissingFiles, Source, readable


def required(data: Path, path: str, sets: Mapping[str, Sequence[Source]]) -> Path:
    """The path ``data``/``path`` of a file declared in one of ``sets`` (name -> sources). Raises MissingFiles,
    which states size, licence and how to fetch it, if it is missing."""
    place = data / path
    if place.is_file():
        return place
    for name, sources in sets.items():
        for source in sources:
            if source.path == path:
                raise MissingFiles(how_to_have(source, name, data), [path])
    raise FileNotFoundError(f"{place}: not there, and no source is declared for it")


def how_to_have(source: Source, name: str, data: Path) -> str:
    """Message on how to get the missing file ``source``. ``name``: its data set; ``data``: the data folder."""
    missing = f"{data / source.path}: not there (about {readable(source.size)}, licence: {source.licence})"
    if source.by_hand:
        return f"{missing}. By hand: {source.by_hand}"
    accept = f" --accept {name.partition('/')[0]}" if source.terms else ""
    terms = f"; {source.terms}" if source.terms else ""
    return (
        f"{missing}. If it lies elsewhere, say where with --data or LEMUR_DATA. Fetch it with: "
        f"python jobs/fetch_data.py {name}{accept} --data {shlex.quote(str(data))}{terms}"
    )
