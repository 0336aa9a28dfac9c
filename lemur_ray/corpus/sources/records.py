"""Read the records of a data file: JSON lines, one JSON list or parquet; JSON also compressed by gzip.

An invalid line yields a BadRecord and reading continues; a file of another format is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lemur_ray.host.json_files import DAMAGED, NotJson, open_bytes, parse_json

FORMS = ".jsonl, .json, either with .gz, or .parquet"


class BadRecord(ValueError):
    """A record that cannot be read or is malformed; ``reason`` is a short name, such as not_json, for counts."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def records(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (number from 0, record) for every record, in file order; a BadRecord in place of an invalid line.

    Raises ValueError naming the file if it has another format, is cut short or damaged, or has a line that is not
    UTF-8 (the message has its number); OSError if the file does not exist.
    """
    name = path.name.lower()
    try:
        if name.endswith(".parquet"):
            yield from enumerate(parquet_rows(path))
        elif name.endswith((".json", ".jsonl", ".json.gz", ".jsonl.gz")):
            with open_bytes(path) as data:
                yield from enumerate(_json_records(data, path))
        else:
            raise ValueError(f"{path}: expected {FORMS}")
    except (*DAMAGED, pa.ArrowInvalid) as error:
        raise ValueError(f"{path} is cut short or damaged ({type(error).__name__}: {error}): copy it anew") from error


def parquet_rows(path: Path, columns: Sequence[str] | None = None, batch_size: int = 1024) -> Iterator[dict[str, Any]]:
    """Yield rows of a parquet file with those of ``columns`` it has (default: all). Raises ArrowException, OSError."""
    with pq.ParquetFile(path) as table:
        there = [name for name in columns if name in table.schema_arrow.names] if columns is not None else None
        for batch in table.iter_batches(batch_size=batch_size, columns=there):
            yield from batch.to_pylist()


def json_lines(data: BinaryIO, path: Path, longest: int = -1) -> Iterator[tuple[int, Any]]:
    """Yield (line number from 1, JSON value) for every line that is not blank.

    The value is a BadRecord for an invalid line: not_json, not_utf8, nested_too_deep, or too_large for a line of
    ``longest`` bytes or more, which is skipped without loading it whole (-1: no limit).
    """
    number = 0
    while line := data.readline(longest):
        number += 1
        if len(line) == longest and not line.endswith(b"\n"):
            while (rest := data.readline(longest)) and not rest.endswith(b"\n"):
                pass
            yield number, BadRecord("too_large")
        elif line.strip():
            try:
                yield number, parse_json(line.rstrip(b"\r\n"), path, number)
            except NotJson as error:
                yield number, BadRecord("not_utf8" if isinstance(error.__cause__, UnicodeDecodeError) else error.reason)


def _json_records(data: BinaryIO, path: Path) -> Iterator[Any]:
    begin = next((line for line in data if line.strip()), b"")
    if begin.lstrip(b" \t\xef\xbb\xbf").startswith(b"["):  # one list, however it is broken into lines
        try:
            whole = parse_json(begin + data.read(), path)
        except NotJson as error:
            raise ValueError(f"{path} begins as a JSON list and is none ({error}): copy it anew") from error
        yield from whole
        return
    data.seek(0)
    for number, value in json_lines(data, path):
        if isinstance(value, BadRecord) and value.reason == "not_utf8":
            raise ValueError(f"{path}, line {number}: no UTF-8; expected {FORMS}, with text in UTF-8")
        yield value
