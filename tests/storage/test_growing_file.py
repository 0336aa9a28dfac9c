"""A file that grows in a bucket: whole commits in any trouble, few pieces, and of two attempts the later one writes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.storage import growing_file
from lemur_ray.storage.bucket_lease import LeaseConflict
from lemur_ray.storage.conditional_writes import read_version
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.growing_file import GrowingFile, list_growing_files, read_growing, starts_with_pieces
from tests.storage.bucket_server import Service


@pytest.fixture(params=["gs", "s3", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "gs":
        request.getfixturevalue("google")
        return "gs://bucket/run"
    return f"{request.getfixturevalue('amazon')}/run" if request.param == "s3" else f"memory:/{tmp_path}"


def mine(name: str) -> dict[str, object]:
    return {"id": name, "host": "here", "pid": 7}


def shipped(file: GrowingFile) -> GrowingFile:
    while file.upload_next():
        pass
    return file


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_what_was_shipped_is_read_and_a_line_that_is_being_written_is_not(folder: str, tmp_path: Path) -> None:
    path, url = tmp_path / "e.jsonl", f"{folder}/part/e.jsonl"
    file = GrowingFile(url, path, 1, mine("a"))
    assert not file.upload_next(), "there is no file yet"
    assert not read_growing(url, tmp_path / "copy")
    for number in range(16):
        add(path, f'{{"line": {number}}}\n{{"ha')
        shipped(file)
        assert read_growing(url, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() + b'{"ha' == path.read_bytes()
        os.truncate(path, path.stat().st_size - 4)
    assert len(file.pieces) <= 5, "pieces are joined: 16 commits leave about log2(16) of them"
    fs, there = file_system(folder)
    assert len(fs.find(there)) == len(file.pieces) + 1, "what was joined is gone"
    assert list_growing_files(folder, "e.jsonl") == (["part/e.jsonl"], [])
    assert starts_with_pieces(path, file.pieces)
    again = GrowingFile(url, path, 2, mine("b"))
    assert again.pieces == file.pieces
    assert not again.upload_next(), "nothing is written twice"


def test_a_large_file_travels_in_pieces_and_a_long_line_whole(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_file, "PIECE_BYTES", 1000)
    path, url = tmp_path / "e.jsonl", f"{folder}/e.jsonl"
    add(path, "x" * 5000 + "\n" + "short\n" * 700)
    file = shipped(GrowingFile(url, path, 1, mine("a")))
    assert file.pieces[0].size > 5000
    assert len(file.pieces) >= 5
    assert file.size == path.stat().st_size
    assert read_growing(url, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


def test_an_earlier_attempt_commits_nothing_after_a_later_one_has_begun(folder: str, tmp_path: Path) -> None:
    url, first, second = f"{folder}/e.jsonl", tmp_path / "first", tmp_path / "second"
    add(first, "one\n")
    cut_off = shipped(GrowingFile(url, first, 1, mine("cut off")))
    newer = GrowingFile(url, second, 2, mine("newer"))
    add(first, "of the one that was cut off\n")
    with pytest.raises(LeaseConflict, match="newer"):
        cut_off.upload_next()
    assert read_growing(url, second)
    add(second, "two\n")
    shipped(newer)
    with pytest.raises(LeaseConflict, match="newer"):
        cut_off.upload_next()
    assert read_growing(url, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "one\ntwo\n"


def test_a_first_commit_that_comes_after_its_time_does_not_stop_the_later_attempt(
    folder: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if folder.startswith("gs"):  # without an index the later attempt has not claimed the file yet: its rules break
        request.getfixturevalue("google").history.excused.add("shrank")
    url, first, second = f"{folder}/e.jsonl", tmp_path / "first", tmp_path / "second"
    early, late = GrowingFile(url, first, 1, mine("early")), GrowingFile(url, second, 2, mine("late"))
    add(first, "of the early one\n")
    add(second, "of the late one\n")
    shipped(early)
    shipped(late)
    assert read_growing(url, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "of the late one\n"


@pytest.mark.parametrize(
    "trouble",
    [{"match": "POST .*index", "lost": True}, {"match": "POST ", "status": 503}, {"match": "DELETE ", "drop": True}],
    ids=["a commit's answer is lost", "a piece is refused", "what was joined cannot be removed at once"],
)
def test_passing_troubles_lose_no_line(google: Service, tmp_path: Path, trouble: dict[str, Any]) -> None:
    path, url = tmp_path / "e.jsonl", "gs://bucket/run/e.jsonl"
    add(path, "one\n")
    file = shipped(GrowingFile(url, path, 1, mine("a")))
    add(path, "two\n")
    ordered = google.trouble(**trouble)
    shipped(file)
    assert ordered.times == 0
    assert read_growing(url, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


def test_a_commit_that_was_refused_leaves_the_one_before_and_is_made_up_for(google: Service, tmp_path: Path) -> None:
    path, url = tmp_path / "e.jsonl", "gs://bucket/run/e.jsonl"
    add(path, "one\n")
    file = shipped(GrowingFile(url, path, 1, mine("a")))
    add(path, "two\n")
    google.trouble(match="POST .*index", status=403, times=100)
    with pytest.raises(OSError, match="Forbidden"):
        file.upload_next()
    assert read_growing(url, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "one\n"
    google.troubles.clear()
    shipped(file)
    assert read_growing(url, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "one\ntwo\n"


def test_a_damaged_or_missing_piece_is_said_and_nothing_half_is_left(google: Service, tmp_path: Path) -> None:
    path, url = tmp_path / "e.jsonl", "gs://bucket/run/e.jsonl"
    add(path, "one\n")
    file = shipped(GrowingFile(url, path, 1, mine("a")))
    name = f"run/e.jsonl.pieces/{file.pieces[0].name}"
    google.objects.put("bucket", name, b"two\n", {})
    with pytest.raises(OSError, match="is damaged: it is not what its index says"):
        read_growing(url, tmp_path / "copy")
    google.objects.delete("bucket", name, {})
    with pytest.raises(OSError, match="a piece that its index names is not there"):
        read_growing(url, tmp_path / "copy")
    assert [found.name for found in tmp_path.iterdir()] == ["e.jsonl"]


def test_names_of_a_bucket_never_lead_out_of_the_folder_here(google: Service) -> None:
    google.objects.put("bucket", "run/../../e.jsonl.pieces/index.json", b"{}", {})
    google.objects.put("bucket", "run/../e.jsonl", b"{}", {})
    assert list_growing_files("gs://bucket/run", "e.jsonl") == ([], [])


def test_the_index_says_who_wrote_it(google: Service, tmp_path: Path) -> None:
    add(tmp_path / "e.jsonl", "one\n")
    shipped(GrowingFile("gs://bucket/e.jsonl", tmp_path / "e.jsonl", 3, mine("a")))
    found = read_version("gs://bucket/e.jsonl.pieces/index.json")
    assert found is not None
    assert {name: json.loads(found[0])[name] for name in ("attempt", "id", "host", "pid")} == {
        "attempt": 3,
        **mine("a"),
    }
