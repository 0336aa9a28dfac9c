"""Records of a data file as they come: JSON lines, one JSON list or parquet, plain or gzip.

A line that is no JSON is told to the reader instead of ending the file; a file that is none of these is an error. Knows
nothing of conversations.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FORMS = ".jsonl, .json, either with .gz, or .parquet"


class BadRecord(ValueError):
    """One record cannot be read; ``reason`` is the name it is counted under."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def records(path: Path) -> Iterator[tuple[int, Any]]:
    """(number, record) of every record, in file order; a BadRecord stands in the place of one that cannot be read.

    Raises ValueError naming the file where it is of another form, cut short or damaged, OSError where it is not there.
    """
    name = path.name.lower()
    try:
        if name.endswith(".parquet"):
            yield from _parquet(path)
        elif name.endswith((".json", ".jsonl", ".json.gz", ".jsonl.gz")):
            yield from _json(path)
        else:
            raise ValueError(f"{path}: expected {FORMS}")
    except (EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is cut short or damaged ({type(error).__name__}: {error}): copy it anew") from error


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    number = 0
    with pq.ParquetFile(path) as table:
        for batch in table.iter_batches(batch_size=1024):
            for record in batch.to_pylist():
                yield number, record
                number += 1


def _json(path: Path) -> Iterator[tuple[int, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        begin = ""
        while not begin.strip() and (line := lines.readline()):
            begin = line
        if begin.lstrip().startswith("["):  # one list, however it is broken into lines
            try:
                whole = json.loads(begin + lines.read())
            except ValueError as error:
                raise ValueError(f"{path} begins as a JSON list and is none ({error}): copy it anew") from error
            yield from enumerate(whole)
            return
        number = 0
        while begin:
            if begin.strip():
                yield number, _parsed(begin)
                number += 1
            begin = lines.readline()


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except RecursionError:
        return BadRecord("nested_too_deep")
    except ValueError:
        return BadRecord("not_json")
