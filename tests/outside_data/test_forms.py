"""What is kept otherwise than it is served: packed, some members of a repository's folder, unpacked."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.outside_data.checking import check
from lemur_ray.outside_data.fetching import FetchOptions, fetch
from lemur_ray.outside_data.making import tree_sum, unpacked
from lemur_ray.outside_data.source import DataSet, Source, address
from tests.outside_data.local_hub import COMMIT, LocalHub


def archive(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def fetched(source: Source, data: Path) -> list[str]:
    return fetch([DataSet("set", "", (source,))], FetchOptions(data, say=lambda line: None))


FOLDER = Source(
    "set/tasks.tar.gz",
    f"git:them/set@{COMMIT}/data/ctf/",
    "",
    0,
    "MIT",
    stored="tar",
    members=("tasks",),
    left_out=("*solution*",),
)


def test_a_file_that_is_served_packed_stays_so_and_its_checksum_is_of_what_it_holds(
    hub: LocalHub, tmp_path: Path
) -> None:
    text = b'{"task_id": 0}\n'
    hub.put("rows.jsonl.gz", packed := gzip.compress(text, 1))
    digest = hashlib.sha256(text).hexdigest()
    rows = Source("set/rows.jsonl.gz", f"hub:them/set@{COMMIT}/rows.jsonl.gz", digest, 15, "MIT", stored="gzip")
    assert fetched(rows, tmp_path) == []
    assert (tmp_path / "set/rows.jsonl.gz").read_bytes() == packed
    assert check(rows, tmp_path).status == "same"


def test_an_archive_that_two_processes_unpack_at_once_is_unpacked_by_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, into, real = tmp_path / "a.tar.gz", tmp_path / "into", tarfile.open
    packed.write_bytes(archive({"x/a": b"a"}))
    firsts: list[int] = []

    def opened_second(*arguments: Any, **named: Any) -> tarfile.TarFile:
        monkeypatch.setattr(tarfile, "open", real)
        firsts.append((unpacked(packed, into) / "x/a").stat().st_ino)
        return real(*arguments, **named)

    monkeypatch.setattr(tarfile, "open", opened_second)
    folder = unpacked(packed, into)
    assert [(folder / "x/a").stat().st_ino] == firsts
    assert list(into.iterdir()) == [folder]


def test_what_an_interrupted_process_left_of_an_archive_is_replaced(tmp_path: Path) -> None:
    (packed := tmp_path / "a.tar.gz").write_bytes(archive({"x/a": b"a"}))
    folder = unpacked(packed, tmp_path / "into")
    (folder / ".done").unlink()
    (folder / "x/a").write_bytes(b"")
    assert unpacked(packed, tmp_path / "into") == folder
    assert (folder / "x/a").read_bytes() == b"a"


def test_what_was_left_is_replaced_once_by_two_processes_that_see_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (packed := tmp_path / "a.tar.gz").write_bytes(archive({"x/a": b"a"}))
    folder, real = unpacked(packed, tmp_path / "into"), shutil.rmtree
    (folder / ".done").unlink()
    used: list[int] = []
    other = threading.Thread(target=lambda: used.append((unpacked(packed, tmp_path / "into") / "x/a").stat().st_ino))

    def removed_late(path: Any, *arguments: Any, **named: Any) -> None:
        if path == folder and other.ident is None:
            other.start()
            other.join(0.5)  # time enough to finish, unless it waits for this one
        real(path, *arguments, **named)

    monkeypatch.setattr(shutil, "rmtree", removed_late)
    assert unpacked(packed, tmp_path / "into") == folder
    other.join()
    assert used == [(folder / "x/a").stat().st_ino], "nobody's folder is removed while it is in use"


def test_members_of_a_repositorys_folder_become_a_tar_whose_checksum_is_of_names_and_contents(
    hub: LocalHub, tmp_path: Path
) -> None:
    hub.archives["them/set", COMMIT] = archive(
        {
            f"set-{COMMIT}/data/ctf/tasks/1/flag.txt": b"flag",
            f"set-{COMMIT}/data/ctf/tasks/0/a.txt": b"a",
            f"set-{COMMIT}/data/ctf/tasks/1/solution/solve.py": b"secret",
            f"set-{COMMIT}/data/ctf/other.txt": b"other",
            f"set-{COMMIT}/README": b"read",
        }
    )
    assert fetched(FOLDER, tmp_path) == []
    with tarfile.open(tmp_path / "set/tasks.tar.gz") as made:
        assert made.getnames() == ["tasks/0/a.txt", "tasks/1/flag.txt"]
    brought = tmp_path / "brought.tar.gz"
    brought.write_bytes(archive({"tasks/1/flag.txt": b"flag", "tasks/0/a.txt": b"a"}))
    assert tree_sum(brought) == tree_sum(tmp_path / "set/tasks.tar.gz"), "in another order, with other dates"
    brought.write_bytes(archive({"tasks/1/flag.txt": b"flag", "tasks/0/b.txt": b"a"}))
    assert tree_sum(brought) != tree_sum(tmp_path / "set/tasks.tar.gz")


def test_a_folder_that_upstream_moved_is_named(hub: LocalHub, tmp_path: Path) -> None:
    hub.archives["them/set", COMMIT] = archive({f"set-{COMMIT}/elsewhere/tasks/a.txt": b"a"})
    (failed,) = fetched(FOLDER, tmp_path)
    assert "has no tasks; upstream has moved it" in failed
    hub.archives["them/set", COMMIT] = archive({f"set-{COMMIT}/data/ctf/tasks/a.txt": bytes(99_999)})[:-40]
    (failed,) = fetched(FOLDER, tmp_path / "other")
    assert "no whole archive" in failed
    assert not (tmp_path / "other/set/tasks.tar.gz").exists()


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_is_checked_then_unpacked_whole_and_never_outside_its_place(
    hub: LocalHub, tmp_path: Path, kind: str
) -> None:
    files = {"games/1/a.txt": b"a", "games/2/b.txt": b"b"}
    if kind == "tar":
        packed = archive(files)
    else:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as made:
            for name, content in {**files, "../../escaped.txt": b"!"}.items():
                made.writestr(name, content)
        packed = out.getvalue()
    hub.put("games.zip", packed)
    digest = hashlib.sha256(packed).hexdigest()
    url = f"hub:them/set@{COMMIT}/games.zip"
    games = Source("one/games", url, digest, len(packed), "MIT", stored="unzipped")
    assert check(games, tmp_path / "d").status == "missing"
    assert fetched(games, tmp_path / "d") == []
    assert check(games, tmp_path / "d").status == "same"
    only = tmp_path / "d/one/games" / ("games" if kind == "zip" else "")  # a folder that holds all is left out
    assert (only / "2/b.txt").read_bytes() == b"b"
    assert not list(tmp_path.glob("escaped.txt"))
    assert not (tmp_path / "d/escaped.txt").exists()
    broken = Source("one/broken", url.replace("games", "broken"), "", 0, "MIT", stored="unzipped")
    hub.put("broken.zip", packed[: len(packed) // 2])
    (failed,) = fetched(broken, tmp_path / "d")
    assert "no whole archive" in failed
    assert not (tmp_path / "d/one/broken").exists()


@pytest.mark.parametrize(
    ("text", "kind", "pinned"),
    [
        (f"hub:a/b@{COMMIT}/main/x.parquet", "hub", True),
        ("git:a-b/c.d@main/x", "git", False),
        ("https://there/x.tar.gz", "url", False),
        ("s3://bucket/x", "url", False),
    ],
)
def test_an_address_says_where_and_of_which_commit(text: str, kind: str, pinned: bool) -> None:
    assert (address(text).kind, address(text).is_pinned) == (kind, pinned)


@pytest.mark.parametrize(
    "given",
    [
        {"path": "../out"},
        {"path": "/etc/passwd"},
        {"path": ""},
        {"sha256": "abc"},
        {"url": "hub:a/b@v1.0/x"},
        {"url": "ftp://there/x"},
        {"url": ""},
        {"url": f"git:a/b@{COMMIT}/folder/"},
        {"stored": "tar"},
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(given: dict[str, str]) -> None:
    fields = {"path": "a", "url": f"hub:a/b@{COMMIT}/x", "sha256": "", "size": 0, "licence": "MIT", **given}
    with pytest.raises(ValueError, match=r"expected|nothing else is"):
        Source(**fields)  # type: ignore[arg-type]
