"""Texts of files of records: JSON lines, a JSON list, parquet, WARC text; the format is recognised by content.

A record without a text is counted; a file in which most records have none is an error that names its columns."""

import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from lemur_ray.corpus.sources.file_refs import FileRef, TextResult, decode
from lemur_ray.outside_data.byte_stream import ReadFailure
from lemur_ray.outside_data.record_formats import (
    BadRecord,
    decompressed,
    is_parquet,
    json_lines,
    json_list,
    open_parquet,
    parquet_rows,
    peek,
    warc_texts,
)
from lemur_ray.outside_data.zstd_frames import FrameLines

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "content", "code", "body", "raw_content"),
    "licence": ("licence", "license"),
    "language": ("language", "lang"),
    "origin": ("origin", "url", "repo_name"),
}
"""Columns that may hold the parts of a document, in order of preference, where a source names none."""
_LINES_ENDINGS = (".jsonl", ".ndjson")
_RECORDS_ENDINGS = (".json", *_LINES_ENDINGS)
_TEXT_ENDINGS = (".txt", ".md", ".rst", ".tex", ".html")
"""Endings of files that are never records, whatever their first line."""
_MOSTLY = 0.5
_CHECKED, _FEWEST = 1000, 10
"""A file of at least ``_FEWEST`` records fails if a share above ``_MOSTLY`` of its first ``_CHECKED`` has no readable
text."""
_UNREADABLE = {
    "no_text_field": "have no text in {asked}; {there}",
    "invalid_json": "are no JSON objects in UTF-8",
    "invalid_utf8": "hold texts that are not UTF-8",
}
"""Rule that drops records -> end of the error message if it drops most of a file."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""First bytes of files in UTF-16; those in UTF-32 begin alike or with zeros."""
_COMMA = re.compile(r"\s*,\s*")
_LINE_PER_BYTE = 4
"""Maximum bytes of a JSON line per byte of the longest text: escapes make it longer."""


def is_records(ref: FileRef, stream: BinaryIO) -> bool:
    """Whether the content of a file is records: parquet, WARC, an object of JSON a line, or a JSON list of objects with
    a text. Of a file named ``.jsonl`` or ``.ndjson`` the first brace is enough. stream: decompressed, its position
    stays. Raises ReadFailure for JSON in UTF-16."""
    if is_parquet(stream):
        return True
    name = ref.name.lower().removesuffix(".gz").removesuffix(".zst")
    if name.endswith(_TEXT_ENDINGS) or (ref.language and not name.endswith(_RECORDS_ENDINGS)):
        return False
    begin = peek(stream, 1 << 18)
    if begin.startswith(b"WARC/1."):
        return True
    if begin.startswith(_UTF_16) and name.endswith(_RECORDS_ENDINGS):
        raise ReadFailure(ref.name, "byte 0", "UTF-16; expected JSON in UTF-8")
    begin = begin.removeprefix(b"\xef\xbb\xbf").lstrip()
    if begin.startswith(b"[") and name.endswith(".json"):
        return _has_text(begin[1:].lstrip(), ref)
    if not begin.startswith(b"{"):
        return False
    return name.endswith(_LINES_ENDINGS) or _are_json_lines(begin) or _has_text(begin.partition(b"\n")[0], ref)


def _are_json_lines(begin: bytes) -> bool:
    """Whether the first line is a whole JSON object and the next one begins like one: records, whatever they hold."""
    first, _, rest = begin.partition(b"\n")
    try:
        return isinstance(json.loads(first.decode("utf-8", "replace")), dict) and rest.lstrip().startswith(b"{")
    except (ValueError, RecursionError):
        return False


def _has_text(begin: bytes, ref: FileRef) -> bool:
    """Whether one of the JSON objects at the start of ``begin``, separated by commas, has a text in a column that
    ``ref`` allows. An object that cannot be parsed to its end has one if more than 128 KiB of it are there and contain
    the quoted name of such a column."""
    text, end = begin.decode("utf-8", "ignore"), 0
    while text.startswith("{", end):
        try:
            value, end = json.JSONDecoder().raw_decode(text, end)
        except (ValueError, RecursionError):
            return len(begin) - end > 1 << 17 and any(f'"{name}"' in text[end:] for name in _names(ref, "text"))
        if isinstance(_first(value, _names(ref, "text")), str):
            return True
        end = next((one.end() for one in [_COMMA.match(text, end)] if one), len(text))
    return False


def read_records(ref: FileRef, stream: BinaryIO) -> Iterator[TextResult]:
    """Yield the text of every record of a file, or the rule by which it was dropped.
    ref: the file, with its columns; stream: its content, decompressed. Raises ReadFailure, which names the columns that
    are there, if the file or most of its records lack the text."""
    records = _parquet(ref, stream) if is_parquet(stream) else _json_or_warc(ref, stream)
    without = Counter[str]()
    keys: Sequence[str] = ()
    count = 0
    for count, (number, record) in enumerate(records, 1):
        item = _text_of(record, f"{ref.name}:{number}", ref)
        if item.rule in _UNREADABLE:
            without[item.rule] += 1
            keys = keys or _columns(record)
        yield item
        if count == _CHECKED:
            _refuse_mostly_without(ref, without, count, keys)
    if count < _CHECKED:
        _refuse_mostly_without(ref, without, count, keys)


def _refuse_mostly_without(ref: FileRef, without: Counter[str], count: int, keys: Sequence[str]) -> None:
    if count >= _FEWEST and without.total() > _MOSTLY * count:
        reason = _UNREADABLE[without.most_common(1)[0][0]].format(asked=_asked(ref), there=_there(keys))
        raise ReadFailure(ref.name, f"record {count}", f"{without.total()} of {count} records {reason}")


def _columns(record: Any) -> Sequence[str]:
    return [f"{name} ({type(value).__name__})" for name, value in record.items()] if isinstance(record, dict) else ()


def _asked(ref: FileRef) -> str:
    return " or ".join(_names(ref, "text"))


def _there(columns: Sequence[str]) -> str:
    return f"columns there: {', '.join(columns) or 'none'}: name the right one by fields: {{text: COLUMN}}"


def _parquet(ref: FileRef, stream: BinaryIO) -> Iterator[tuple[Any, Any]]:
    table = open_parquet(stream)
    schema, groups = table.schema_arrow, range(table.num_row_groups)
    columns = [name.partition(".")[0] for part in COLUMNS for name in _names(ref, part)]
    if not {name.partition(".")[0] for name in _names(ref, "text")} & set(schema.names):
        there = [f"{column.name} ({column.type})" for column in schema]
        raise ReadFailure(ref.name, "schema", f"no column {_asked(ref)}; {_there(there)}")
    if ref.part:
        groups = range(ref.part[1], ref.part[2])
    rows = parquet_rows(table, columns, batch_size=256, groups=groups)
    where = f"{groups.start}." if ref.part else ""
    yield from ((f"{where}{number}", record) for number, record in enumerate(rows, 1))


def _json_or_warc(ref: FileRef, stream: BinaryIO) -> Iterator[tuple[Any, Any]]:
    path, longest = Path(ref.name), _LINE_PER_BYTE * ref.max_bytes
    if ref.part and ref.part[0] == "frames":
        lines = FrameLines(stream, ref.part[1], ref.part[2], stream.seek(0, io.SEEK_END), longest)
        yield from ((f"{ref.part[1]}.{number}", value) for number, value in json_lines(lines, path, longest))
        return
    if ref.part:
        yield from _lines_of_part(ref, stream, longest)
        return
    data = decompressed(stream)
    begin = peek(data, 64)
    if begin.startswith(b"WARC/1."):
        yield from enumerate(warc_texts(data, ref.max_bytes), 1)
    elif begin.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        yield from enumerate(json_list(data, path), 1)
    else:
        yield from json_lines(data, path, longest)


def _lines_of_part(ref: FileRef, stream: BinaryIO, longest: int) -> Iterator[tuple[Any, Any]]:
    """Lines that begin in a range of bytes, so that parts of a file yield every line exactly once."""
    begin, end = ref.part[1], ref.part[2]
    stream.seek(max(0, begin - 1))
    while begin and (line := stream.readline(longest)) and not line.endswith(b"\n"):
        pass  # the line that holds the byte before belongs to the part before
    for number in itertools.count(1):
        if stream.tell() >= end:
            return
        if not peek(stream, 1):
            raise EOFError("the file ends before this part of it")
        for _, value in json_lines(_OneLine(stream), Path(ref.name), longest):
            yield f"{begin}.{number}", value


class _OneLine:
    """One line of a stream, as a stream of its own."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._ended = stream, False

    def readline(self, limit: int = -1, /) -> bytes:
        if self._ended:
            return b""
        line = self._stream.readline(limit)
        self._ended = line.endswith(b"\n") or not line
        return line


def _names(ref: FileRef, part: str) -> tuple[str, ...]:
    return (ref.fields[part],) if part in ref.fields else COLUMNS[part]


def _first(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    """First value of a record under one of the names that is not null; a name with dots leads into nested records."""
    for name in names:
        value: Any = record.get(name)
        if value is None and "." in name:
            value = record
            for step in name.split("."):
                value = value.get(step) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def _text_of(record: Any, name: str, ref: FileRef) -> TextResult:
    if isinstance(record, BadRecord):
        return TextResult(name, rule="too_large" if record.reason == "too_large" else "invalid_json")
    if not isinstance(record, dict):
        return TextResult(name, rule="no_text_field")
    if record.get("too_large") is True and "text" not in record:
        return TextResult(name, rule="too_large")
    text = _text(record, _names(ref, "text"))
    if text is None:
        return TextResult(name, rule="no_text_field")
    text = decode(text) if isinstance(text, bytes) else text
    if text is None or not _is_utf8(text):
        return TextResult(name, rule="invalid_utf8")
    parts = {part: _words(_first(record, _names(ref, part))) for part in ("licence", "language", "origin")}
    return TextResult(
        name, text, None, parts["licence"] or ref.licence, parts["language"] or ref.language, parts["origin"]
    )


def _text(record: Mapping[str, Any], names: Sequence[str]) -> str | bytes | None:
    for name in names:
        value = _first(record, (name,))
        if isinstance(value, str | bytes):
            return value
    return None


def _is_utf8(text: str) -> bool:
    """Whether a text has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _words(value: Any) -> str:
    """A licence, language or origin as one line of text; the values of a list are separated by commas."""
    if value is None or (type(value) is str and value.isascii()):
        return value or ""
    values = value if isinstance(value, list) else [value]
    words = ", ".join(str(one) for one in values if isinstance(one, str | int))
    return words.encode("utf-8", "replace").decode()
