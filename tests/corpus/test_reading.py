"""Whatever lies in a folder is read as text or counted under a named rule; nothing there is fatal."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lemur_ray.corpus.sources.texts import FileRef, TextResult, read_texts


def found(path: Path, data: bytes, reader: str = "file") -> list[TextResult]:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return list(read_texts(FileRef(str(path), path.stat().st_size, reader, path.name)))


def rules(items: list[TextResult]) -> list[str | None]:
    return [item.rule for item in items]


def test_text_is_decoded_without_byte_order_mark_and_with_unix_line_ends(tmp_path: Path) -> None:
    assert found(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo\rthr\xc3\xa9e")[0].text == "one\ntwo\nthrée"
    assert found(tmp_path / "a.txt.gz", b"packed")[0].text == "packed"


def test_invalid_utf_8_is_counted(tmp_path: Path) -> None:
    assert rules(found(tmp_path / "a.txt", b"caf\xe9")) == ["invalid_utf8"]


def test_a_missing_file_and_a_broken_archive_are_counted_as_unreadable(tmp_path: Path) -> None:
    assert rules(list(read_texts(FileRef(str(tmp_path / "gone"), 3, "file", "gone")))) == ["unreadable"]
    (tmp_path / "b.gz").write_bytes(b"not gzip at all")
    assert rules(list(read_texts(FileRef(str(tmp_path / "b.gz"), 15, "file", "b.gz")))) == ["unreadable"]
    cut = gzip.compress(os.urandom(5000))[:-100]
    (tmp_path / "c.gz").write_bytes(cut)
    assert rules(list(read_texts(FileRef(str(tmp_path / "c.gz"), len(cut), "file", "c.gz")))) == ["unreadable"]


def test_a_hundred_megabytes_on_one_line_are_passed_over_in_little_memory(tmp_path: Path) -> None:
    line = tmp_path / "line.jsonl"
    with open(line, "wb") as f:
        f.write(b'{"text": "first"}\n{"text": "')
        for _ in range(100):
            f.write(b"x" * 1_000_000)
        f.write(b'"}\n{"text": "last"}\n')
    size = line.stat().st_size
    tracemalloc.start()
    items = list(read_texts(FileRef(str(line), size, "jsonl", "line.jsonl")))
    whole = list(read_texts(FileRef(str(line), size, "file", "line.txt")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(item.text, item.rule) for item in items] == [("first", None), ("", "too_large"), ("last", None)]
    assert rules(whole) == ["too_large"]
    assert peak < 30e6


def test_an_archive_that_would_unpack_to_too_much_is_not_unpacked(tmp_path: Path) -> None:
    assert rules(found(tmp_path / "bomb.gz", b"a" * 50_000_000)) == ["too_large"]


def test_json_lines_give_their_text_or_the_reason_why_not(tmp_path: Path) -> None:
    lines = [
        json.dumps({"content": "one", "license": "MIT"}),
        "",
        "{broken",
        "[1, 2]",
        json.dumps({"title": "no text"}),
        json.dumps({"text": None, "code": "two"}),
        '{"text": "\\ud800 lone surrogate"}',
        "[" * 100_000,
    ]
    items = found(tmp_path / "a.jsonl.gz", "\n".join(lines).encode(), "jsonl")
    assert rules(items) == [
        None,
        "invalid_json",
        "no_text_field",
        "no_text_field",
        None,
        "invalid_utf8",
        "invalid_json",
    ]
    assert (items[0].text, items[0].licence, items[0].path) == ("one", "MIT", "a.jsonl.gz:1")
    assert items[4].text == "two"


def test_parquet_gives_its_text_column_and_damage_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"content": ["one", "two", None], "n": [1, 2, 3]}), path)
    items = list(read_texts(FileRef(str(path), 1, "parquet", "a.parquet")))
    assert [(item.text, item.rule) for item in items] == [("one", None), ("two", None), ("", "no_text_field")]
    data = path.read_bytes()
    assert rules(found(tmp_path / "b.parquet", data[: len(data) // 2], "parquet")) == ["unreadable"]


def test_package_descriptions_lose_their_markup(tmp_path: Path) -> None:
    status = (
        b"Package: one\nStatus: install ok installed\nDescription: does one thing\n It does it well.\n .\n Twice.\n"
        b"Homepage: x\n\nPackage: two\nVersion: 2\n\nPackage: three\nDescription: caf\xe9\n"
    )
    items = found(tmp_path / "status", status, "package_descriptions")
    assert [item.text for item in items] == ["one: does one thing\n\nIt does it well.\n\nTwice.\n", ""]
    assert rules(items) == [None, "invalid_utf8"]


def test_docstrings_of_modules_classes_and_functions_come_in_order(tmp_path: Path) -> None:
    long = "is described here at such a length that it is worth reading as prose, which takes some words."
    source = f'''"""The module {long}"""
class A:
    """The class {long}

    Indented.
    """
    def f(self):
        r"""The method {long} \\d"""
    def g(self):
        """Short."""
async def h():
    """The function {long}"""
'''
    text = found(tmp_path / "a.py", source.encode(), "docstrings")[0].text
    assert [line.split(" is")[0] for line in text.split("\n") if "described" in line] == [
        "The module", "The class", "The method", "The function",
    ]  # fmt: skip
    assert "\nIndented.\n" in text
    assert "Short" not in text


@pytest.mark.parametrize("source", ["def f(:\n", "x = '\0'\n", "(" * 5000 + ")" * 5000])
def test_python_that_does_not_parse_is_counted(tmp_path: Path, source: str) -> None:
    assert rules(found(tmp_path / "a.py", source.encode(), "docstrings")) == ["not_python"]


def test_distribution_metadata_gives_its_description(tmp_path: Path) -> None:
    data = b"Metadata-Version: 2.1\nName: x\n\n# X\n\nWhat it does.\n"
    assert found(tmp_path / "METADATA", data, "metadata")[0].text == "# X\n\nWhat it does.\n"
