"""JSON is read from plain and packed files alike, and whatever is wrong is said with file and line."""

import gzip
import json
from pathlib import Path

import pytest

from lemur_ray.host.json_files import NotJson, open_text, read_json, read_json_lines


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_value_is_the_same_plain_or_packed(tmp_path: Path, name: str) -> None:
    assert read_json(write(tmp_path / name, '{"a": ["\u00e4", 1.5]}')) == {"a": ["\u00e4", 1.5]}


def test_gzip_is_known_by_its_first_bytes_and_a_name_that_promises_it_is_held_to_it(tmp_path: Path) -> None:
    (tmp_path / "packed.json").write_bytes(gzip.compress(b"[1]"))
    assert read_json(tmp_path / "packed.json") == [1]
    (tmp_path / "plain.json.gz").write_bytes(b"[1]")
    with pytest.raises(ValueError, match=r"plain.json.gz: Not a gzipped file"):
        read_json(tmp_path / "plain.json.gz")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_lines_come_with_their_numbers_and_blank_ones_are_passed_over(tmp_path: Path, name: str) -> None:
    text = json.dumps({"text": "one\u2028line"}, ensure_ascii=False) + "\n\n[2]\r\n3"
    assert list(read_json_lines(write(tmp_path / name, text))) == [(1, {"text": "one\u2028line"}), (3, [2]), (4, 3)]


def test_a_bad_line_ends_the_file_or_stands_in_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '1\n{"a": 1,\n' + "[" * 100_000 + "\n4\n")
    with pytest.raises(NotJson, match=r"a.jsonl, line 2, column 9: not JSON .*; expected JSON"):
        list(read_json_lines(path))
    read = dict(read_json_lines(path, bad_lines=True))
    assert (read[1], read[4]) == (1, 4)
    assert (read[2].reason, read[3].reason) == ("not_json", "nested_too_deep")
    assert str(read[3]).startswith(f"{path}, line 3: nested too deeply")


def test_the_place_of_a_fault_in_a_whole_value_is_its_line_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(NotJson, match=r"a.json, line 3, column 1: not JSON"):
        read_json(write(tmp_path / "a.json", '{"a":\n1,\n}'))


@pytest.mark.parametrize(
    "data",
    [gzip.compress(b"[1, 2, 3]" * 100)[:-20], b"\x1f\x8b nothing", b"\xff\xfe"],
    ids=["cut off", "no gzip", "no text"],
)
def test_a_damaged_file_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "log.json").write_bytes(data)
    for read in (read_json, lambda path: list(read_json_lines(path))):
        with pytest.raises(ValueError, match=r"log.json: .*expected JSON in UTF-8, plain or gzip"):
            read(tmp_path / "log.json")


def test_a_file_that_is_not_there_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), open_text(tmp_path / "nowhere.json"):
        pass
