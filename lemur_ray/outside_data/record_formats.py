"""Records of a byte stream or file: JSON lines, JSON lists, parquet, WARC text; each also compressed by gzip or zstd.

Formats are recognised by content; only ``records`` also asks for a name. Knows no field of a record."""

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import pyarrow as pa
import pyarrow.parquet as pq

from lemur_ray.host.json_files import NotJson, parse_json
from lemur_ray.outside_data.byte_stream import ReadFailure, open_stream

GZIP, ZSTD, SKIPPABLE, PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18", b"PAR1"
_BATCH_BYTES = 32 << 20
"""Approximate bytes of one batch of parquet rows in memory."""
_ROW_BYTES = 256 << 20
"""Maximum mean size of the rows of a row group: a row is in memory as a whole."""
_LIST_CHARACTERS = 64 << 20
"""Maximum length of one element of a JSON list."""


FORMS = ".jsonl, .json, either compressed by gzip or zstd, or .parquet"
"""Formats of a file of ``records``, for messages."""
_JSON_NAMES = tuple(f"{name}{packed}" for name in (".json", ".jsonl") for packed in ("", ".gz", ".zst"))


class BadRecord(ValueError):
    """A record that cannot be read or is malformed; ``reason`` is a short name, such as not_json, for counts."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def peek(stream: BinaryIO, count: int) -> bytes:
    """The next ``count`` bytes of a buffered stream, or fewer at its end, without advancing it."""
    return cast(io.BufferedReader, stream).peek(count)[:count]


def decompressed(stream: BinaryIO, buffer: int = 1 << 20) -> BinaryIO:
    """The content of a buffered stream that holds plain bytes, or members of gzip or frames of zstd. buffer: bytes that
    are decompressed at a time. Reading raises OSError if a member or frame ends too early, or is damaged."""
    if not (kind := compression(stream)):
        return stream
    unpacked = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), kind)
    return cast(BinaryIO, io.BufferedReader(unpacked, buffer))


def compression(stream: BinaryIO) -> str:
    """gzip or zstd if a buffered stream begins as such a file does, else empty."""
    magic = peek(stream, 4)
    return "gzip" if magic[:2] == GZIP else "zstd" if magic == ZSTD or magic[1:] == SKIPPABLE else ""


def is_parquet(stream: BinaryIO) -> bool:
    """Whether a buffered stream begins as a parquet file does."""
    return peek(stream, 4) == PARQUET


def open_parquet(source: Path | BinaryIO) -> pq.ParquetFile:
    """Open a parquet file; checksums of pages are verified if it has any. Raises ArrowException or OSError if it is
    damaged or cannot be read."""
    return pq.ParquetFile(source, page_checksum_verification=True)


def parquet_rows(
    source: Path | BinaryIO | pq.ParquetFile,
    columns: Sequence[str] | None = None,
    batch_size: int = 1024,
    groups: range | None = None,
    skip: int = 0,
) -> Iterator[dict[str, Any]]:
    """Yield rows of a parquet file with those of ``columns`` it has (default: all). groups: row groups to read
    (default: all). skip: rows to pass over, whole groups unread. Batches have at most ``batch_size`` rows and, for rows
    of about the same size, 32 MiB. Raises ArrowException, OSError; ValueError for rows of more than 256 MiB."""
    opened = isinstance(source, pq.ParquetFile)
    table: Any = source if opened else open_parquet(cast(BinaryIO, source))
    with nullcontext() if opened else table:
        there = [name for name in columns if name in table.schema_arrow.names] if columns is not None else None
        for group in groups if groups is not None else range(table.num_row_groups):
            about = table.metadata.row_group(group)
            if skip >= about.num_rows:
                skip -= about.num_rows
                continue
            if about.total_byte_size > _ROW_BYTES * about.num_rows:
                raise ValueError(f"row group {group}: rows of {about.total_byte_size // about.num_rows:,} bytes")
            rows = max(1, min(batch_size, about.num_rows * _BATCH_BYTES // max(about.total_byte_size, 1)))
            for batch in table.iter_batches(batch_size=rows, row_groups=[group], columns=there, use_threads=False):
                yield from batch.slice(skip).to_pylist()
                skip = max(0, skip - len(batch))


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


def _json_records(data: BinaryIO, path: Path) -> Iterator[Any]:
    if peek(data, 64).lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"["):  # one list, however it is broken into lines
        yield from json_list(data, path)
        return
    for number, value in json_lines(data, path):
        if isinstance(value, BadRecord) and value.reason == "not_utf8":
            raise ValueError(f"{path}, line {number}: no UTF-8; expected {FORMS}, with text in UTF-8")
        yield value


class Lines(Protocol):
    """A binary stream with ``readline``, which ``json_lines`` reads."""

    def readline(self, limit: int = -1, /) -> bytes:
        """The next line, at most ``limit`` bytes of it (-1: all); empty at the end."""
        ...


def json_lines(data: Lines, path: Path, longest: int = -1) -> Iterator[tuple[int, Any]]:
    """Yield (line number from 1, JSON value) for every line that is not blank.
    The value is a BadRecord for an invalid line: not_json, not_utf8, nested_too_deep, or too_large for a line of
    ``longest`` bytes or more, which is skipped without loading it whole (-1: no limit)."""
    number = 0
    while line := data.readline(longest):
        number += 1
        if len(line) == longest and not line.endswith(b"\n"):
            while (rest := data.readline(longest)) and not rest.endswith(b"\n"):
                pass
            yield number, BadRecord("too_large")
        elif line.strip():
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            try:
                yield number, parse_json(line.rstrip(b"\r\n"), path, number)
            except NotJson as error:
                yield number, BadRecord("not_utf8" if isinstance(error.__cause__, UnicodeDecodeError) else error.reason)


def json_list(data: BinaryIO, path: Path) -> Iterator[Any]:
    """Yield the elements of one JSON list, however it is broken into lines; holds one element at a time. Raises
    ValueError with the number of the element at which the content is not a list, and UnicodeDecodeError."""
    text = io.TextIOWrapper(data, encoding="utf-8-sig")
    try:
        yield from _elements(text, path)
    finally:
        text.detach()  # the stream stays open: it is the caller's


def _elements(text: io.TextIOWrapper, path: Path) -> Iterator[Any]:
    decoder, buffer, at, number, whole = json.JSONDecoder(), text.read(1 << 16).lstrip()[1:], 0, 0, False
    separator = ""
    while True:
        while at < len(buffer) and buffer[at] in " \t\r\n":
            at += 1
        if at < len(buffer) and buffer[at] == "]" and (not separator or number == 0):
            if buffer[at + 1 :].strip() or any(chunk.strip() for chunk in iter(lambda: text.read(1 << 16), "")):
                raise ValueError(f"{path}: text after the end of the JSON list")
            return
        if at < len(buffer) and number and not separator and buffer[at] == ",":
            separator, at = ",", at + 1
            continue
        if at < len(buffer) and (separator or number == 0):
            try:
                value, end = _element(decoder, buffer, at)
            except RecursionError:
                raise ValueError(f"{path}, element {number + 1}: nested too deeply") from None
            if end >= 0 and (end < len(buffer) or whole):
                yield value
                at, number, separator = end, number + 1, ""
                continue
        elif at < len(buffer):
            raise ValueError(f"{path}, element {number}: expected a comma or the end of the JSON list")
        if whole or len(buffer) - at > _LIST_CHARACTERS:
            raise ValueError(f"{path}, element {number + 1}: not JSON, or cut short")
        more = text.read(max(1 << 16, len(buffer) - at))
        buffer, at, whole = buffer[at:] + more, 0, not more


def _element(decoder: json.JSONDecoder, buffer: str, at: int) -> tuple[Any, int]:
    """(JSON value at index ``at``, index after it); -1 if the value is incomplete or no JSON. Raises RecursionError."""
    try:
        return decoder.raw_decode(buffer, at)
    except json.JSONDecodeError:
        return None, -1


def warc_texts(data: BinaryIO, longest: int) -> Iterator[dict[str, Any]]:
    """Yield {text, origin, language} of each extracted text (``conversion`` record) of a WARC file, as in WET files. A
    text longer than ``longest`` bytes is skipped and yields a record without text. Raises ValueError for damage,
    EOFError if the last record is incomplete."""
    while line := data.readline(1 << 16):
        if not line.strip():
            continue
        if not line.startswith(b"WARC/"):
            raise ValueError(f"expected the head of a WARC record, got {line[:40]!r}")
        head = {}
        while (line := data.readline(1 << 16)).strip():
            name, _, value = line.decode("utf-8", "replace").partition(":")
            head[name.lower()] = value.strip()
        if not (length := head.get("content-length", "")).isdigit():
            raise ValueError("a WARC record without Content-Length")
        left, body = int(length), b""
        wanted = head.get("warc-type") == "conversion" and left <= longest
        while left and (chunk := data.read(min(left, 1 << 20))):
            left -= len(chunk)
            body += chunk if wanted else b""
        if left:
            raise EOFError("a WARC record is cut short")
        if head.get("warc-type") == "conversion":
            language = head.get("warc-identified-content-language", "").partition(",")[0]
            record = {"origin": head.get("warc-target-uri", ""), "language": language}
            yield {"text": body, **record} if wanted else {"too_large": True, **record}
