"""Readers that yield the texts of a file: whole file, JSON lines, parquet, package descriptions, docstrings; also gzip.

Unreadable content is never an error but yields a result with the name of a rule by which it is dropped.
"""

from __future__ import annotations

import ast
import gzip
import inspect
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from lemur_ray.corpus.filters import MAX_BYTES
from lemur_ray.corpus.sources.records import BadRecord, json_lines, parquet_rows
from lemur_ray.host.json_files import open_bytes
from lemur_ray.host.python_source import parsed
from lemur_ray.storage.published_folder import local_copy

TEXT_FIELDS = ("text", "content", "code", "body")
"""Fields that may hold the text of a record, in order of preference."""
_LINE_BYTES = 4 * MAX_BYTES
"""Maximum length of a parsed JSON line. Escapes make it longer than its text."""


@dataclass(frozen=True)
class FileRef:
    """A file of a source and the reader for it. ``FileRef(*ref.to_json())`` restores it from JSON."""

    path: str
    """Local path, or URL of an object."""
    size: int
    """Bytes of the file as stored."""
    reader: str = "file"
    """Name of a reader in READERS."""
    name: str = ""
    """Path without the machine's prefix, for messages and for sampling."""
    licence: str = ""
    language: str = ""
    version: str = ""
    """Version of an object, which distinguishes contents of the same size; empty for a local file."""

    def to_json(self) -> list[Any]:
        return [self.path, self.size, self.reader, self.name, self.licence, self.language, self.version]


@dataclass(frozen=True)
class TextResult:
    """A text, or the name of the rule by which it was rejected."""

    path: str
    text: str = ""
    rule: str | None = None
    licence: str = ""


def read_texts(ref: FileRef) -> Iterator[TextResult]:
    """Yield every text of a file, in order. Damaged content yields a result with a rule instead of an error.

    Raises OSError if a listed object cannot be downloaded, so that a network failure never drops a text silently.
    """
    with local_copy(ref.path) as path:
        try:
            yield from READERS[ref.reader](replace(ref, path=path))
        except (OSError, EOFError, zlib.error):
            yield TextResult(ref.name, rule="unreadable")


def decode(data: bytes) -> str | None:
    """Text of UTF-8 bytes, with Unix line ends and without a byte order mark; None if they are not UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _open(ref: FileRef) -> IO[bytes] | gzip.GzipFile:
    return gzip.open(ref.path, "rb") if ref.path.endswith(".gz") else open(ref.path, "rb")


def _whole(ref: FileRef) -> TextResult:
    if ref.size > MAX_BYTES:
        return TextResult(ref.name, rule="too_large")
    with _open(ref) as f:
        data = f.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return TextResult(ref.name, rule="too_large")
    text = decode(data)
    return (
        TextResult(ref.name, rule="invalid_utf8") if text is None else TextResult(ref.name, text, licence=ref.licence)
    )


def _file(ref: FileRef) -> Iterator[TextResult]:
    yield _whole(ref)


def _json_lines(ref: FileRef) -> Iterator[TextResult]:
    path = Path(ref.path)
    with open_bytes(path) as data:
        for number, value in json_lines(data, path, _LINE_BYTES):
            name = f"{ref.name}:{number}"
            if isinstance(value, BadRecord):
                yield TextResult(name, rule="too_large" if value.reason == "too_large" else "invalid_json")
            else:
                yield _record(value, name)


def _record(record: Any, name: str) -> TextResult:
    if not isinstance(record, dict):
        return TextResult(name, rule="no_text_field")
    text = next((record[field] for field in TEXT_FIELDS if isinstance(record.get(field), str)), None)
    if text is None:
        return TextResult(name, rule="no_text_field")
    try:
        text.encode()
    except UnicodeEncodeError:
        return TextResult(name, rule="invalid_utf8")
    licence = record.get("licence") or record.get("license") or ""
    return TextResult(name, text, licence=licence if isinstance(licence, str) else "")


def _parquet(ref: FileRef) -> Iterator[TextResult]:
    columns = (*TEXT_FIELDS, "licence", "license")
    try:
        for number, record in enumerate(parquet_rows(Path(ref.path), columns, batch_size=256), 1):
            yield _record(record, f"{ref.name}:{number}")
    except (pa.ArrowException, UnicodeDecodeError):
        yield TextResult(ref.name, rule="unreadable")


def _package_descriptions(ref: FileRef) -> Iterator[TextResult]:
    """Yield one text per package of a Debian status file: name, summary, then the description without its markup."""
    with _open(ref) as f:
        paragraph: list[bytes] = []
        for line in (*f, b"\n"):
            if line.strip():
                paragraph.append(line)
                continue
            description = _description(b"".join(paragraph), ref.name)
            paragraph = []
            if description:
                yield description


def _description(data: bytes, name: str) -> TextResult | None:
    text = decode(data)
    if text is None:
        return TextResult(name, rule="invalid_utf8")
    package = re.search(r"^Package: (.+)$", text, re.MULTILINE)
    description = re.search(r"^Description(?:-en)?: (.*(?:\n .*)*)", text, re.MULTILINE)
    if not package or not description:
        return None
    summary, *lines = description[1].split("\n")
    paragraphs = "\n".join("" if line.strip() == "." else line.removeprefix(" ") for line in lines)
    return TextResult(f"{name}/{package[1]}", f"{package[1]}: {summary}\n\n{paragraphs}\n")


def _metadata(ref: FileRef) -> Iterator[TextResult]:
    """Yield the long description of a Python distribution: the part of its METADATA file after the headers."""
    whole = _whole(ref)
    yield TextResult(whole.path, whole.text.partition("\n\n")[2], whole.rule, whole.licence)


def _docstrings(ref: FileRef) -> Iterator[TextResult]:
    """Yield the docstrings (80 characters or more) of a Python file as one text, in order, without indentation."""
    whole = _whole(ref)
    if whole.rule:
        yield whole
        return
    try:
        tree = parsed(whole.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield TextResult(ref.name, rule="not_python")
        return
    parts = [inspect.cleandoc(text) for text in _nested_docstrings(tree) if len(text) >= 80]
    if parts:
        yield TextResult(ref.name, "\n\n".join(parts) + "\n", licence=ref.licence)


def _nested_docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the docstrings of a syntax node and of all classes and functions nested in it, in file order."""
    text = ast.get_docstring(node, clean=False)
    if text:
        yield text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _nested_docstrings(child)


READERS: dict[str, Callable[[FileRef], Iterator[TextResult]]] = {
    "file": _file,
    "jsonl": _json_lines,
    "parquet": _parquet,
    "package_descriptions": _package_descriptions,
    "metadata": _metadata,
    "docstrings": _docstrings,
}
