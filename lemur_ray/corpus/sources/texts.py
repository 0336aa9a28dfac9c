"""Readers that yield the texts of a file: whole file, records, package descriptions, docstrings; also compressed.

Content that is no text yields a result with the rule that drops it; a file that cannot be read raises ``ReadFailure``.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

import pyarrow as pa

from lemur_ray.corpus.sources.file_refs import FileRef, TextResult, decode
from lemur_ray.corpus.sources.notebooks import script_of_notebook
from lemur_ray.corpus.sources.record_texts import is_records, read_records
from lemur_ray.host.python_source import parsed
from lemur_ray.outside_data.byte_stream import ReadFailure
from lemur_ray.outside_data.record_formats import decompressed, is_parquet

__all__ = ["READERS", "FileRef", "TextResult", "decode", "read_texts"]


def read_texts(ref: FileRef) -> Iterator[TextResult]:
    """Yield every text of a file, in order. Content that is no text yields a result with a rule instead of an error.
    Raises ReadFailure if the file cannot be read to its end."""
    number = 0
    with ref.open() as stream:
        try:
            for item in READERS[ref.reader](ref, stream):
                number += 1
                if item.rule is None and ref.allow and not _is_allowed(item.licence, ref.allow):
                    item = replace(item, text="", rule="licence")
                script = script_of_notebook(item.text)
                yield item if script is None else replace(item, text=script)
        except ReadFailure as error:
            raise ReadFailure(error.file, f"{error.position}, after {number} documents", error.reason) from error
        except (OSError, EOFError, ValueError, pa.ArrowException) as error:
            part = "{} {} to {}, ".format(*ref.part) if ref.part else ""
            at = f"{part}after {number} documents, near byte {_tell(stream)} of {ref.file_size or ref.size}"
            raise ReadFailure(ref.name, at, f"damaged or cut short ({type(error).__name__}: {error})") from error


def _tell(stream: BinaryIO) -> int:
    try:
        return stream.tell()
    except ValueError:  # closed by the reader above it
        return -1


def _is_allowed(licence: str, allow: Sequence[str]) -> bool:
    """Whether all licences of a document, separated by commas, are allowed; a document without licence is not."""
    return bool(licence) and all(one.strip() in allow for one in licence.split(","))


def _whole(ref: FileRef, stream: BinaryIO) -> TextResult:
    data = stream.read(ref.max_bytes + 1)
    if len(data) > ref.max_bytes:
        return TextResult(ref.name, rule="too_large")
    text = decode(data)
    if text is None:
        return TextResult(ref.name, rule="invalid_utf8")
    return TextResult(ref.name, text, licence=ref.licence, language=ref.language)


def _file(ref: FileRef, stream: BinaryIO) -> Iterator[TextResult]:
    """Texts of a file of records, as far as its content is one, else the whole file as one text."""
    if ref.part:  # only files of records have parts
        yield from read_records(ref, stream)
        return
    data = stream if is_parquet(stream) else decompressed(stream)
    if is_records(ref, data):
        yield from read_records(ref, data)
    else:
        yield _whole(ref, data)


def _package_descriptions(ref: FileRef, stream: BinaryIO) -> Iterator[TextResult]:
    """Yield one text per package of a Debian status file: name, summary, then the description without its markup."""
    paragraph: list[bytes] = []
    for line in (*decompressed(stream), b"\n"):
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


def _metadata(ref: FileRef, stream: BinaryIO) -> Iterator[TextResult]:
    """Yield the long description of a Python distribution: the part of its METADATA file after the headers."""
    whole = _whole(ref, decompressed(stream))
    yield TextResult(whole.path, whole.text.partition("\n\n")[2], whole.rule, whole.licence)


def _docstrings(ref: FileRef, stream: BinaryIO) -> Iterator[TextResult]:
    """Yield the docstrings (80 characters or more) of a Python file as one text, in order, without indentation."""
    whole = _whole(ref, decompressed(stream))
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


READERS: dict[str, Callable[[FileRef, BinaryIO], Iterator[TextResult]]] = {
    "file": _file,
    "jsonl": read_records,
    "parquet": read_records,
    "package_descriptions": _package_descriptions,
    "metadata": _metadata,
    "docstrings": _docstrings,
}
