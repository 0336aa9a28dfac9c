"""A folder that is kept in a bucket: taken up on any host, had by one process, and nothing lost where the bucket is."""

import contextlib
import json
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lemur_ray.storage import bucket_lease, synced_folder
from lemur_ray.storage.conditional_writes import read_version
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.folder_mirror import display_name, mirror_growing_files
from lemur_ray.storage.growing_file import GrowingFile, read_growing
from lemur_ray.storage.synced_folder import SyncError, sync_with_bucket
from tests.storage.bucket_server import Service


@pytest.fixture(params=["gs", "s3"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "gs":
        request.getfixturevalue("google")
        return "gs://bucket/run"
    return f"{request.getfixturevalue('amazon')}/run"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, lemur_home: Path) -> None:
    monkeypatch.setattr(bucket_lease, "HEARTBEAT_S", 0.1)


def join(before: Path, into: Path) -> None:
    there = into.read_text()
    with into.open("a") as file:
        file.writelines(line for line in before.read_text().splitlines(keepends=True) if line not in there)


def open_run(url: str) -> AbstractContextManager[Path]:
    return sync_with_bucket(url, "e.jsonl", ("settings.json",), join)


def add(folder: Path, *lines: str) -> None:
    (folder / "part").mkdir(exist_ok=True)
    with (folder / "part/e.jsonl").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def lines_in(url: str, folder: Path) -> list[str]:
    """What anybody reads now."""
    return (folder / "seen").read_text().split() if read_growing(f"{url}/part/e.jsonl", folder / "seen") else []


def until(so: Callable[[], bool], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_written_is_in_the_bucket_soon_and_taken_up_on_an_empty_disk(
    url: str, tmp_path: Path, lemur_home: Path
) -> None:
    with open_run(url) as folder:
        add(folder, "one", "two")
        (folder / "part/settings.json").write_text("{}")
        until(lambda: lines_in(url, tmp_path) == ["one", "two"])
        (folder / "index.html").write_text("<html>")
        (folder / ".hidden").write_text("")
    fs, there = file_system(url)
    assert fs.cat_file(f"{there}/part/e.jsonl") == b"one\ntwo\n", "one object for other programs"
    assert fs.cat_file(f"{there}/index.html") == b"<html>"
    assert not fs.exists(f"{there}/.hidden")
    shutil.rmtree(lemur_home)
    with open_run(url) as folder:
        assert (folder / "part/e.jsonl").read_text() == "one\ntwo\n"
        assert (folder / "part/settings.json").read_text() == "{}"
        assert not (folder / "index.html").exists(), "what is made of the rest is made again"
        add(folder, "three")
    (copy,) = mirror_growing_files(url, "e.jsonl", ("settings.json",))
    assert copy.read_text().split() == ["one", "two", "three"]
    assert (copy.parent / "settings.json").read_text() == "{}"
    assert display_name(copy) == f"{url}/part/e.jsonl"
    assert abs(copy.stat().st_mtime - time.time()) < 3600


def test_a_second_process_is_refused_in_one_sentence_and_may_come_afterwards(google: Service) -> None:
    with open_run("gs://bucket/run") as folder:
        add(folder, "one")
        with pytest.raises(SyncError, match=r"being written by another run \(process \d+ on .*\): wait for it"):
            open_run("gs://bucket/run").__enter__()
    with open_run("gs://bucket/run"):
        pass


def test_a_host_that_comes_back_adds_what_only_it_had(
    google: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "gs://bucket/run"
    with open_run(url) as first:
        add(first, "shipped")
    add(first, "only here")  # it was killed before it could ship that
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "elsewhere"))
    with open_run(url) as second:
        add(second, "of another host")
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "lemur"))
    with open_run(url) as again:
        assert again == first
        expected = "shipped\nof another host\nonly here\n"
        assert (again / "part/e.jsonl").read_text() == expected
    assert lines_in(url, tmp_path) == expected.split()


def test_a_file_that_was_copied_to_the_bucket_by_hand_is_taken_up(google: Service, tmp_path: Path) -> None:
    google.objects.put("bucket", "run/part/e.jsonl", b"one\n", {})
    (copy,) = mirror_growing_files("gs://bucket/run", "e.jsonl", ())
    assert copy.read_text() == "one\n"
    with open_run("gs://bucket/run") as folder:
        add(folder, "two")
    assert lines_in("gs://bucket/run", tmp_path) == ["one", "two"]


@pytest.mark.parametrize("trouble", [{"stop": True}, {"status": 503}, {"status": 401}], ids=["silence", "503", "401"])
def test_a_bucket_that_is_gone_ends_the_work_with_a_sentence_and_nothing_is_lost(
    google: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: dict[str, int]
) -> None:
    monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "10")  # as long as a busy machine may take
    began = time.monotonic()

    def work() -> None:
        with open_run("gs://bucket/run") as folder:
            add(folder, "one")
            until(lambda: lines_in("gs://bucket/run", tmp_path) == ["one"])
            monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "0.8")
            google.trouble(times=10_000, **trouble)
            add(folder, "two")
            time.sleep(60)

    with pytest.raises(SyncError, match=r"gs://bucket (did not answer|answered).* what has ended is kept in .*copies"):
        work()
    assert time.monotonic() - began < 50
    google.troubles.clear()
    monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "30")
    with open_run("gs://bucket/run") as folder:
        assert (folder / "part/e.jsonl").read_text() == "one\ntwo\n"
    assert lines_in("gs://bucket/run", tmp_path) == ["one", "two"]


def test_a_listing_that_comes_late_costs_no_line(
    google: Service, lemur_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "gs://bucket/run"
    with open_run(url) as folder:
        add(folder, "one", "two")
    shutil.rmtree(lemur_home)

    def work() -> None:
        with monkeypatch.context() as late:
            late.setattr(synced_folder, "list_growing_files", lambda url, growing: ([], []))
            run = open_run(url)
            folder = run.__enter__()
        with contextlib.ExitStack() as ends:
            ends.push(run)
            add(folder, "a line that is longer than both that are there")
            time.sleep(60)

    with pytest.raises(SyncError, match=r"gs://bucket/run/part/e.jsonl has lines that were not there when"):
        work()
    with open_run(url) as folder:
        found = (folder / "part/e.jsonl").read_text().splitlines()
    assert found == ["one", "two", "a line that is longer than both that are there"]


def test_a_moment_without_the_bucket_ends_nothing(google: Service, tmp_path: Path) -> None:
    with open_run("gs://bucket/run") as folder:
        google.trouble(match="POST ", status=403, times=3)
        add(folder, "one")
        until(lambda: lines_in("gs://bucket/run", tmp_path) == ["one"])


def test_who_was_taken_over_stops_and_commits_nothing_more(google: Service, tmp_path: Path) -> None:
    url = "gs://bucket/run"

    def work() -> None:
        with open_run(url) as folder:
            add(folder, "one")
            until(lambda: lines_in(url, tmp_path) == ["one"])
            newer = {"id": "newer", "host": "elsewhere", "pid": 7}
            GrowingFile(f"{url}/part/e.jsonl", tmp_path / "newer", 2, newer)
            add(folder, "two")
            time.sleep(60)

    with pytest.raises(SyncError, match=r"taken over by another run \(process 7 on elsewhere\)"):
        work()
    assert lines_in(url, tmp_path) == ["one"]


@pytest.mark.parametrize("before", [b"", b"of an earlier run"], ids=["new object", "object of an earlier run"])
def test_a_lease_lost_between_the_check_and_the_write_of_an_object_replaces_nothing_of_the_next_host(
    google: Service, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    url, name, write_if = "gs://bucket/run", "run/part/settings.json", synced_folder.write_if
    if before:
        google.objects.put("bucket", name, before, {})

    def delayed(where: str, data: bytes, version: str | None) -> str:
        if data == b"older":
            newer = {"id": "newer", "host": "elsewhere", "pid": 7, "holder": 2, "count": 0}
            google.objects.put("bucket", "run/.run.lease", json.dumps(newer).encode(), {})
            google.objects.put("bucket", name, b"newer", {})
        return write_if(where, data, version)

    def work() -> None:
        with open_run(url) as folder:
            add(folder, "one")
            (folder / "part/settings.json").write_text("older")
            time.sleep(60)

    monkeypatch.setattr(synced_folder, "write_if", delayed)
    with pytest.raises(SyncError, match=r"taken over by another run \(process 7 on elsewhere\)"):
        work()
    assert google.objects.get("bucket", name, {}).data == b"newer"


def test_what_ended_before_an_error_is_stored_and_the_lease_given_back(google: Service, tmp_path: Path) -> None:
    def work(error: type[BaseException]) -> None:
        with open_run("gs://bucket/run") as folder:
            add(folder, error.__name__)
            raise error

    for error in (KeyboardInterrupt, OSError):
        with pytest.raises(error):
            work(error)
    assert lines_in("gs://bucket/run", tmp_path) == ["KeyboardInterrupt", "OSError"]
    found = read_version("gs://bucket/run/.run.lease")
    assert found is not None
    assert json.loads(found[0])["given_back"]


def test_what_is_no_bucket_that_can_be_written_is_one_sentence(google: Service) -> None:
    with pytest.raises(SyncError, match="gs://nowhere/run: there is no such bucket: make it first"):
        open_run("gs://nowhere/run").__enter__()
    with pytest.raises(SyncError, match="nosuch://x cannot be written from here: Protocol not known"):
        open_run("nosuch://x").__enter__()
    google.objects.read_only.add("bucket")
    with pytest.raises(OSError, match="Forbidden"):
        open_run("gs://bucket/run").__enter__()
