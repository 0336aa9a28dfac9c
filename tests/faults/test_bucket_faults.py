"""What the bucket service of the tests records, and the faults that it can be given."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import fsspec
import pytest

from lemur_ray.storage.file_system import client_environment, file_system
from lemur_ray.weights.checkpoints import put_aside
from tests.faults.history import Client
from tests.storage.bucket_server import Service, google_service

HOST = "127.0.0.1"


def put(url: str, name: str, data: bytes = b"x", condition: str = "", timeout_s: float = 60.0) -> int:
    """Write an object; returns the status."""
    where = f"{url}/upload/storage/v1/b/bucket/o?uploadType=media&name={name}{condition}"
    try:
        with urllib.request.urlopen(urllib.request.Request(where, data=data), timeout=timeout_s) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def lead_to(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of this process ask the service; what a client adds to the environment goes again with the test."""
    for variable, value in service.entrance("another host").environment.items():
        monkeypatch.setenv(variable, value)
    for variable, value in client_environment().items():
        monkeypatch.setenv(variable, value)
    fsspec.filesystem("gs").clear_instance_cache()


def listed(service: Service) -> list[str]:
    return [item["name"] for item in service.objects.listing("bucket", {})["items"]]


def test_the_history_names_process_entrance_and_answer_of_every_write() -> None:
    with google_service() as service:
        door = service.entrance("second command")
        assert put(service.url, "a", b"12") == 200
        assert put(door.url, "a", b"123", "&ifGenerationMatch=0") == 412
        service.trouble(status=503)
        assert put(door.url, "b") == 503
        program = f"from tests.faults.test_bucket_faults import put; print(put({door.url!r}, 'c'))"
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
            assert child.communicate()[0] == b"200\n"
        first, refused, troubled, other = service.history.writes
        assert (first.name, first.size, first.before, first.status) == ("bucket/a", 2, 0, 200)
        assert first.client.process == ("", HOST, os.getpid())
        assert first.after > 0
        assert (refused.name, refused.status, refused.before) == ("bucket/a", 412, first.after)
        assert refused.client.entrance == "second command"
        assert (troubled.name, troubled.status) == ("bucket/b", 503)
        assert other.client.process == ("second command", HOST, child.pid)


def test_a_breach_fails_the_test_that_uses_the_service() -> None:
    def shorten() -> None:
        with google_service() as service:
            assert put(service.url, "metrics.jsonl", b"a\nb\n") == 200
            assert put(service.url, "metrics.jsonl", b"a\n") == 200

    with pytest.raises(AssertionError, match=r"shrank: #2.*bucket/metrics.jsonl"):
        shorten()


def test_an_object_is_written_once_in_an_interval() -> None:
    with google_service() as service:
        service.objects.write_interval_s = 3600.0
        assert [put(service.url, name) for name in ("a", "a", "b")] == [200, 429, 200]
        service.objects.write_interval_s = 0.0
        assert put(service.url, "a") == 200


def test_listings_are_late_for_others_and_reads_are_not() -> None:
    with google_service() as service:
        service.objects.put("bucket", "old", b"1", {})
        service.objects.listing_delay_s = 3600.0
        with service.history.sent_by(Client("another")):
            service.objects.put("bucket", "new", b"2", {})
            service.objects.delete("bucket", "old", {})
            assert listed(service) == ["new"]
        assert service.objects.get("bucket", "new", {}).data == b"2"
        assert listed(service) == ["old"]
        service.objects.listing_delay_s = 1e-9
        assert listed(service) == ["new"]


_CHECKPOINT = "bucket/run/checkpoints/4"


@pytest.mark.parametrize(
    ("is_late", "remove"),
    [
        (True, lambda fs: fs.rm(_CHECKPOINT, recursive=True)),
        (True, lambda fs: put_aside(f"gs://{_CHECKPOINT}")),
        (False, lambda fs: fs.rm("bucket/run", recursive=True)),
        (False, lambda fs: fs.rm("bucket/run/checkpoints/*", recursive=True)),
        (False, lambda fs: fs.rm(fs.find("bucket/run"))),
    ],
    ids=["a folder", "put aside", "its run", "a pattern", "its files"],
)
def test_a_removed_checkpoint_loses_its_marker_first_also_where_the_listing_does_not_show_it_yet(
    monkeypatch: pytest.MonkeyPatch, is_late: bool, remove: Callable[[Any], object]
) -> None:
    with google_service() as service:
        lead_to(service, monkeypatch)
        for name in ("_CHECKPOINT_METADATA", "plan/metadata", "state/_METADATA", "state/manifest.ocdbt"):
            put(service.url, f"run/checkpoints/4/{name}")
        service.objects.listing_delay_s = 3600.0 if is_late else 0.0
        put(service.url, "run/checkpoints/4/commit_success.txt")
        remove(file_system(f"gs://{_CHECKPOINT}")[0])
        deleted = [write.name for write in service.history.accepted() if write.deletes]
        assert deleted[0] == f"{_CHECKPOINT}/commit_success.txt"
        assert len(deleted) == 5


def test_a_folder_with_a_marker_alone_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    with google_service() as service:
        lead_to(service, monkeypatch)
        put(service.url, "run/folder/commit_success.txt")
        file_system("gs://bucket/run")[0].rm("bucket/run/folder", recursive=True)
        assert listed(service) == []
        with pytest.raises(FileNotFoundError):
            file_system("gs://bucket/run")[0].rm("bucket/run/folder", recursive=True)


def test_an_entrance_that_is_cut_holds_requests_back_and_drops_those_that_are_given_up() -> None:
    with google_service() as service:
        door = service.entrance("cut")
        door.cut()
        with pytest.raises(TimeoutError):
            put(door.url, "given-up", timeout_s=0.2)
        waiting = threading.Thread(target=put, args=(door.url, "late"))
        waiting.start()
        assert put(service.url, "other") == 200, "other entrances are open"
        time.sleep(0.1)
        assert [write.name for write in service.history.writes] == ["bucket/other"]
        door.mend()
        waiting.join()
        assert [write.name for write in service.history.writes] == ["bucket/other", "bucket/late"]
