"""Content that is no text is counted under a named rule; a file that cannot be read to its end is a failure."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lemur_ray.corpus.sources.folders import folder_source
from lemur_ray.corpus.sources.notebooks import script_of_notebook
from lemur_ray.corpus.sources.texts import FileRef, TextResult, read_texts
from lemur_ray.outside_data.byte_stream import ReadFailure


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


def test_a_missing_and_a_cut_file_are_failures_and_a_wrong_ending_does_not_matter(tmp_path: Path) -> None:
    with pytest.raises(ReadFailure, match="gone, opening: cannot be opened"):
        list(read_texts(FileRef(str(tmp_path / "gone"), 3, "file", "gone")))
    cut = gzip.compress(os.urandom(5000))[:-100]
    (tmp_path / "c.gz").write_bytes(cut)
    with pytest.raises(ReadFailure, match=r"c.gz, after 0 documents, near byte 4\d\d\d of 49\d\d: damaged or cut"):
        list(read_texts(FileRef(str(tmp_path / "c.gz"), len(cut), "file", "c.gz")))
    (tmp_path / "b.gz").write_bytes(b"not gzip at all")
    assert [item.text for item in read_texts(FileRef(str(tmp_path / "b.gz"), 15))] == ["not gzip at all"]


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


@pytest.mark.slow
def test_texts_of_two_gigabytes_are_too_large_whatever_holds_them(tmp_path: Path) -> None:
    """Holes in files stand for the texts, so that nothing is written; of their memory, see worker_memory.py."""
    found = {}
    for name, begin in (
        ("whole.txt", ""),
        ("line.jsonl", '{"text": "first"}\n{"text": "'),
        ("list.json", '[{"text": "'),
    ):
        with open(tmp_path / name, "wb") as file:
            file.write(begin.encode())
            file.seek(2_000_000_000, os.SEEK_CUR)
            file.write(b'"}\n{"text": "last"}\n')
        (ref,) = folder_source(f"mine:text:{tmp_path / name}").files
        try:
            found[name] = [item.rule or item.text for item in read_texts(ref)]
        except ReadFailure as error:
            found[name] = [error.reason]
    assert found["whole.txt"] == ["too_large"]
    assert found["line.jsonl"] == ["first", "too_large", "last"]
    assert "element 1" in found["list.json"][0]


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
    items = list(read_texts(FileRef(str(path), path.stat().st_size, "parquet", "a.parquet")))
    assert [(item.text, item.rule) for item in items] == [("one", None), ("two", None), ("", "no_text_field")]
    data = path.read_bytes()
    with pytest.raises(ReadFailure, match=r"b\.parquet"):
        found(tmp_path / "b.parquet", data[: len(data) // 2], "parquet")


RECORDS = [{"text": f"text {i}", "url": f"https://site/{i}", "meta": {"lang": "en"}, "n": i} for i in range(20)]


@pytest.mark.parametrize("name", ["c4-00000.json.gz", "part-0.jsonl.zst", "data.json", "noname", "wrong.parquet.gz"])
def test_records_are_recognised_by_content_not_by_name(name: str, tmp_path: Path) -> None:
    lines = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()
    packed = {".gz": gzip.compress, ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True)}
    (path := tmp_path / name).write_bytes(packed.get(path_suffix(name), bytes)(lines))
    items = list(read_texts(folder_source(f"mine:text:{path}").files[0]))
    assert [(item.text, item.origin) for item in items] == [(r["text"], r["url"]) for r in RECORDS]


@pytest.mark.parametrize("name", ["c4-00000.json.gz", "part-0.zst", "data.json", "noname"])
def test_lines_of_json_are_records_whatever_the_first_ones_hold(name: str, tmp_path: Path) -> None:
    packed = {".gz": gzip.compress, ".zst": lambda data: pa.Codec("zstd").compress(data, asbytes=True)}
    others: list[dict[str, object]] = [{"id": 1}, {"text": None}]
    for records in ([*others, *RECORDS], [{"prompt": record["text"], "n": 1} for record in RECORDS]):
        lines = "".join(json.dumps(record) + "\n" for record in records).encode()
        if records[0] is others[0]:
            lines = b'{"text": "\xe9"}\n' + lines
        (path := tmp_path / name).write_bytes(packed.get(path_suffix(name), bytes)(lines))
        (ref,) = folder_source(f"mine:text:{path}").files
        if records[0] is others[0]:
            rules = [item.rule for item in read_texts(ref)]
            assert rules == ["invalid_json", "no_text_field", "no_text_field", *[None] * len(RECORDS)]
        else:
            with pytest.raises(ReadFailure, match=r"20 of 20 records have no text .* there: prompt \(str\), n \(int\)"):
                list(read_texts(ref))


@pytest.mark.parametrize(
    "first", ['{"id": 1, "text"\n', '{"id": 1}', json.dumps({"id": "i" * (1 << 18), "text": "last"}) + "\n"]
)
def test_a_file_named_as_lines_of_json_is_records_if_it_begins_with_a_brace(first: str, tmp_path: Path) -> None:
    (path := tmp_path / "own.jsonl").write_text(first)
    (ref,) = folder_source(f"mine:text:{path}").files
    expected = {'{"id": 1, "text"\n': (None, "invalid_json"), '{"id": 1}': (None, "no_text_field")}.get(
        first, ("last", None)
    )
    assert [(item.text or None, item.rule) for item in read_texts(ref)] == [expected]


def path_suffix(name: str) -> str:
    return Path(name).suffix


def test_a_json_list_of_records_and_a_json_file_that_is_code(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps([{"id": 1}, {"text": None}, *RECORDS], indent=1))
    (tmp_path / "package.json").write_text('{"name": "x",\n "version": "1"}\n')
    listed = {ref.name: list(read_texts(ref)) for ref in folder_source(f"mine:code:{tmp_path}").files}
    assert [item.rule for item in listed["list.json"][:2]] == ["no_text_field"] * 2
    assert [item.text for item in listed["list.json"][2:]] == [record["text"] for record in RECORDS]
    assert [item.text for item in listed["package.json"]] == ['{"name": "x",\n "version": "1"}\n']


def test_a_notebook_is_a_script_without_its_outputs_in_files_and_in_columns(tmp_path: Path) -> None:
    cells: list[dict[str, object]] = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "some words"]},
        {"cell_type": "code", "source": "x = 1\nprint(x)", "outputs": [{"text": "1"}]},
        {"cell_type": "code", "source": []},
    ]
    four = json.dumps({"cells": cells, "nbformat": 4, "metadata": {}})
    three = json.dumps({"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": ["y = 2\n"]}]}]})
    (tmp_path / "a.ipynb").write_text(four)
    pq.write_table(pa.table({"content": [four, three, '{"nbformat": 4']}), tmp_path / "b.parquet")
    of_file, of_column = (
        [item.text for item in read_texts(ref)] for ref in folder_source(f"mine:code:{tmp_path}").files
    )
    script = "# # Title\n#\n# some words\n\nx = 1\nprint(x)\n"
    assert of_file == [script]
    assert of_column == [script, "y = 2\n", '{"nbformat": 4']
    for cells in (12, True, None, {"a": 1}, ["x"], [{"source": "x"}]):
        for form in ({"cells": cells}, {"worksheets": cells}, {"worksheets": [{"cells": cells}]}):
            assert script_of_notebook(json.dumps({"nbformat": 4, **form})) is None, "text like any other"


def test_named_fields_are_read_and_a_missing_one_is_a_failure_that_names_the_columns(tmp_path: Path) -> None:
    table = pa.table({"body_text": [b"one", b"two"], "licences": [["MIT", "BSD"], []], "size": [1, 2]})
    pq.write_table(table, path := tmp_path / "a.parquet")
    asked = {"text": "body_text", "licence": "licences"}
    items = list(read_texts(FileRef(str(path), path.stat().st_size, "parquet", "a.parquet", "unknown", fields=asked)))
    assert [(item.text, item.licence) for item in items] == [("one", "MIT, BSD"), ("two", "unknown")]
    with pytest.raises(ReadFailure, match=r"no column text or content .*there: body_text \(binary\), licences"):
        list(read_texts(FileRef(str(path), path.stat().st_size, "parquet", "a.parquet")))
    (lines := tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    nested = FileRef(
        str(lines), lines.stat().st_size, "jsonl", "a.jsonl", fields={"text": "text", "language": "meta.lang"}
    )
    assert {item.language for item in read_texts(nested)} == {"en"}
    with pytest.raises(ReadFailure, match=r"20 of 20 records have no text in prose; columns there: text \(str\), url"):
        list(read_texts(FileRef(str(lines), lines.stat().st_size, "jsonl", "a.jsonl", fields={"text": "prose"})))


def test_only_documents_of_allowed_licences_are_read(tmp_path: Path) -> None:
    given = ["MIT", "MIT, GPL-3.0", None]
    (path := tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"text": "x", "license": one}) + "\n" for one in given)
    )
    assert rules(list(read_texts(FileRef(str(path), path.stat().st_size, "jsonl", "a", allow=["MIT"])))) == [
        None,
        "licence",
        "licence",
    ]


def test_warc_text_gives_its_extracted_pages(tmp_path: Path) -> None:
    def record(kind: str, body: bytes) -> bytes:
        head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: https://site/1\r\nContent-Length: {len(body)}\r\n"
        return gzip.compress(head.encode() + b"\r\n" + body + b"\r\n\r\n")

    data = record("warcinfo", b"software: x") + record("conversion", "Caf\u00e9\r\nopen".encode())
    (path := tmp_path / "CC-MAIN.warc.wet.gz").write_bytes(data)
    items = list(read_texts(folder_source(f"mine:text:{path}").files[0]))
    assert [(item.text, item.origin) for item in items] == [("Café\nopen", "https://site/1")]


def test_other_encodings_and_nested_json_are_counted(tmp_path: Path) -> None:
    assert rules(found(tmp_path / "a.txt", "caf\u00e9".encode("utf-16"))) == ["invalid_utf8"]
    lines = [b'{"text": "caf\xe9"}', b'{"text": "good"}', b'{"text": {"inner": "x"}}', b"\x00\x01"]
    items = found(tmp_path / "a.jsonl", b"\n".join(lines), "jsonl")
    assert rules(items) == ["invalid_json", None, "no_text_field", "invalid_json"]
    whole = "".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(40))
    for wrong in (
        whole.encode("utf-16"),
        whole.replace("text ", "caf\u00e9 ").replace("\\u00e9", "\u00e9").encode("latin-1"),
    ):
        with pytest.raises(
            ReadFailure, match=r"a.jsonl, record 4\d, .*4\d of 4\d records are no JSON objects in UTF-8"
        ):
            found(tmp_path / "a.jsonl", wrong, "jsonl")
    for name in ("a.json", "a.jsonl.gz"):
        with pytest.raises(ReadFailure, match=r"byte 0, .*UTF-16; expected JSON in UTF-8"):
            found(tmp_path / name, whole.encode("utf-16"))
    surrogates = "".join(json.dumps({"text": "\udc80"}) + "\n" for _ in range(40))
    with pytest.raises(ReadFailure, match=r"40 of 40 records hold texts that are not UTF-8"):
        found(tmp_path / "a.jsonl", surrogates.encode())


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
