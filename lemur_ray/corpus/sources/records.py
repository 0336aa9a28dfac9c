"""Reads the records of a data file: JSON lines, one JSON list or parquet; JSON also compressed by gzip or zstd.

An invalid line yields a BadRecord and reading continues; a file of another format is an error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from lemur_ray.outside_data.byte_stream import ReadFailure, open_stream
from lemur_ray.outside_data.record_formats import (
    BadRecord,
    decompressed,
    is_parquet,
    json_lines,
    json_list,
    parquet_rows,
    peek,
)

FORMS = ".jsonl, .json, either compressed by gzip or zstd, or .parquet"
__all__ = ["FORMS", "BadRecord", "json_lines", "parquet_rows", "records"]


def records(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (number from 0, record) for every record of a file in one of the ``FORMS``, in order: a JSON value
    (parquet: a dict), or a BadRecord in place of an invalid line. Blank lines do not count. Raises ValueError if the
    file has another format, is cut short or damaged (also an element of a list), has a line that is not UTF-8 (the
    message has its number, from 1) or rows of more than 256 MiB; OSError if it does not exist or its storage fails."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    with open_stream(str(path)) as stream:
        try:
            if is_parquet(stream):
                yield from enumerate(parquet_rows(stream))
                return
            if not path.name.lower().endswith(_JSON_NAMES):
                raise ValueError(f"{path}: expected {FORMS}")
            yield from enumerate(_json_records(decompressed(stream), path))
        except ReadFailure:
            raise
        except (OSError, EOFError, UnicodeDecodeError, pa.ArrowException) as error:
            raise ValueError(
                f"{path} is cut short or damaged ({type(error).__name__}: {error}): copy it anew"
            ) from error


_JSON_NAMES = tuple(f"{name}{packed}" for name in (".json", ".jsonl") for packed in ("", ".gz", ".zst"))


def _json_records(data: BinaryIO, path: Path) -> Iterator[Any]:
    if peek(data, 64).lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"["):  # one list, however it is broken into lines
        yield from json_list(data, path)
        return
    for number, value in json_lines(data, path):
        if isinstance(value, BadRecord) and value.reason == "not_utf8":
            raise ValueError(f"{path}, line {number}: no UTF-8; expected {FORMS}, with text in UTF-8")
        yield value
