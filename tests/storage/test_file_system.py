"""One file system of a URL: the same for fsspec, pyarrow, Ray and orbax; in trouble the same bytes or a sentence."""

import os
import pickle
import sys
import time

import fsspec
import pytest

from lemur_ray.storage.file_system import arrow_file_system, bucket_environment, file_system
from lemur_ray.storage.retry_policy import BucketError
from tests.storage.bucket_server import Service

DATA = bytes(range(256)) * 40


def test_what_one_client_writes_the_others_read(google: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    fs, path = file_system("gs://bucket/a/b")
    fs.pipe_file(path, DATA)
    arrow, inner = arrow_file_system("gs://bucket/a/b")
    assert arrow is not None
    with arrow.open_input_file(inner) as file:
        assert file.read() == DATA
    assert fsspec.filesystem("gs") is fs, "libraries that ask fsspec by themselves get the same"
    assert fs.ls("bucket/a", detail=False) == ["bucket/a/b"]
    sent = pickle.dumps(arrow)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    with pickle.loads(sent).open_input_file(inner) as file:
        assert file.read() == DATA, "a process that was not told where the service is finds it"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google.url)
    assert pickle.loads(sent) == arrow
    fs.rm("bucket/a", recursive=True)
    assert not fs.exists(path)


def test_a_local_path_needs_nothing(tmp_path: os.PathLike[str]) -> None:
    fs, path = file_system(str(tmp_path))
    assert fs.isdir(path)
    assert arrow_file_system(str(tmp_path)) == (None, str(tmp_path))


def test_a_listing_is_never_remembered(google: Service) -> None:
    fs, _ = file_system("gs://bucket")
    fs.pipe_file("bucket/x/1", b"1")
    assert len(fs.ls("bucket/x")) == 1
    google.objects.put("bucket", "x/2", b"2", {})
    assert len(fs.ls("bucket/x")) == 2


@pytest.mark.parametrize(
    "trouble",
    [{"status": 503, "times": 5}, {"status": 429}, {"drop": True}, {"truncate": 100}, {"slow_s": 0.3}],
    ids=["503 five times", "429", "drop", "truncate", "slow"],
)
def test_passing_troubles_cost_time_and_no_byte(
    google: Service, trouble: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gcsfs.retry.min", lambda *_: 0.01, raising=False)  # seconds between two of its tries
    fs, path = file_system("gs://bucket/a")
    fs.pipe_file(path, DATA)
    google.trouble(match="GET .*media|GET /download", **trouble)
    assert fs.cat_file(path) == DATA


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ({"status": 401}, "gs://bucket answered 401 .*credentials are missing or have expired"),
        ({"status": 503}, "gs://bucket did not answer within 1 s.*run the same command again"),
        ({"stop": True}, "gs://bucket did not answer within 1 s.*run the same command again"),
    ],
    ids=["401", "503 for ever", "silence"],
)
def test_lasting_troubles_end_with_a_sentence(
    google: Service, monkeypatch: pytest.MonkeyPatch, trouble: dict[str, int], said: str
) -> None:
    monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "30" if trouble.get("status") == 401 else "1")
    fsspec.filesystem("gs").clear_instance_cache()
    fs, path = file_system("gs://bucket/a")
    google.trouble(times=1000, **trouble)
    began = time.monotonic()
    for ask in (fs.cat_file, fs.isdir, fs.exists):
        with pytest.raises(BucketError, match=said):
            ask(path)
    assert time.monotonic() - began < 60


def test_workers_are_told_where_the_buckets_are(google: Service) -> None:
    assert (
        bucket_environment()["STORAGE_EMULATOR_HOST"] == bucket_environment()["TENSORSTORE_GCS_HTTP_URL"] == google.url
    )


def test_a_missing_client_is_said_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs.core", None)
    monkeypatch.delitem(sys.modules, "lemur_ray.storage.google_files", raising=False)
    for scheme in ("gs", "gcs"):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, scheme, raising=False)
    with pytest.raises(ImportError, match=r"pip install 'lemur-ray\[gcs\]'"):
        file_system("gs://bucket/x")
