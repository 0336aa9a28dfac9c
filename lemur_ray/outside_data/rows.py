"""Streams the first rows of a large data set into parquet files.

After a failure or an interruption the same call continues after the last complete file. Knows no benchmark."""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from lemur_ray.host.json_files import NotJson, read_json
from lemur_ray.outside_data import provenance
from lemur_ray.outside_data.byte_stream import ReadFailure, open_stream
from lemur_ray.outside_data.file_lists import list_files
from lemur_ray.outside_data.record_formats import decompressed, is_parquet, json_lines, open_parquet, parquet_rows
from lemur_ray.outside_data.source import FetchError, Stream

ROWS_OF_A_FILE = 10_000


def stream_rows(stream: Stream, skip: int) -> Iterator[dict[str, Any]]:
    """Yield rows of a stream's files, in the order of the files' names, after the first ``skip``. Raises ReadFailure if
    a file cannot be read to its end."""
    for file in list_files(stream.address.uri):
        with open_stream(file.uri, file.name, size=file.size, version=file.version) as data:
            if is_parquet(data):
                table = open_parquet(data)
                yield from parquet_rows(table, skip=skip)
                skip = max(0, skip - table.metadata.num_rows)
                continue
            for _, record in json_lines(decompressed(data), Path(file.name)):
                if not skip and isinstance(record, dict):
                    yield record
                skip = max(0, skip - isinstance(record, dict))


def take_rows(stream: Stream, data: Path, rows: int, say: Callable[[str], None] = print) -> int:
    """Download rows of a stream into parquet files until its folder below ``data`` has ``rows`` of them; nothing if it
    has. Returns the number of rows there. ``say``: receives a line per file. Raises FetchError, OSError."""
    folder = data / stream.path
    note = _note(stream, folder)
    if note["rows"] >= rows:
        say(f"{stream.path}: {note['rows']} rows there already")
        return int(note["rows"])
    say(f"{stream.path}: {rows} rows of {stream.url} ({stream.licence})")
    folder.mkdir(parents=True, exist_ok=True)
    for part in _parts(stream, stream_rows(stream, note["rows"]), rows - note["rows"]):
        name = f"part-{len(note['files']):05d}.parquet"
        _write(folder / name, part)
        note["files"].append(name)
        note["rows"] += len(part)
        provenance.write(folder, note)
        say(f"{stream.path}: {note['rows']} rows")
    return int(note["rows"])


def rows_there(stream: Stream, data: Path) -> int:
    """Number of a stream's rows in complete files below ``data``. Raises FetchError for files from elsewhere."""
    return int(_note(stream, data / stream.path)["rows"])


def _parts(stream: Stream, rows: Iterator[dict[str, Any]], count: int) -> Iterator[list[dict[str, Any]]]:
    while count > 0:
        try:
            part = list(islice(rows, min(count, ROWS_OF_A_FILE)))
        except (ReadFailure, ValueError, pyarrow.ArrowException) as error:
            raise FetchError(f"{stream.url}: {error}; the rows that came are kept, the same command goes on") from error
        if not part:
            return
        count -= len(part)
        yield part


def _note(stream: Stream, folder: Path) -> dict[str, Any]:
    new = {
        "url": stream.url, "revision": stream.address.commit, "licence": stream.licence, "accepted": stream.terms,
        "rows": 0, "files": [], "state": None,
    }  # fmt: skip
    try:
        known = read_json(provenance.place(folder))
    except (FileNotFoundError, NotJson):
        if any(folder.glob("*")):
            raise FetchError(f"{folder}: files that somebody brought lie there; name another data folder") from None
        return new
    if known["url"] != stream.url:
        raise FetchError(f"{folder}: has rows of {known['url']}, asked for {stream.url}; move them away first")
    return dict(known)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), part)
    os.replace(part, path)
