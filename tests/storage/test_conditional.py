"""Of any number of writers who name one version one wins; a lost answer is not taken for a lost race."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from lemur_ray.storage.conditional_writes import VersionConflict, read_version, write_if
from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.retry_policy import BucketError
from tests.storage.bucket_server import Service


@pytest.fixture(params=["gs", "s3", "memory"])
def folder(request: pytest.FixtureRequest) -> str:
    if request.param == "gs":
        request.getfixturevalue("google")
        return "gs://bucket/runs"
    return str(request.getfixturevalue("amazon")) if request.param == "s3" else "memory://bucket/conditional"


def test_a_write_counts_only_in_place_of_the_version_that_was_seen(folder: str) -> None:
    url = f"{folder}/one"
    assert read_version(url) is None
    first = write_if(url, b"first", None)
    assert read_version(url) == (b"first", first)
    with pytest.raises(VersionConflict):
        write_if(url, b"of another", None)
    second = write_if(url, b"second", first)
    with pytest.raises(VersionConflict):
        write_if(url, b"third", first)
    assert read_version(url) == (b"second", second)
    fs, path = file_system(url)
    fs.rm_file(path)
    with pytest.raises(VersionConflict):
        write_if(url, b"fourth", second)


def test_of_six_at_once_one_wins(folder: str) -> None:
    url = f"{folder}/race"
    won: list[int] = []
    together = threading.Barrier(6)

    def come(number: int) -> None:
        together.wait()
        try:
            write_if(url, b"%d" % number, None)
            won.append(number)
        except VersionConflict:
            pass

    threads = [threading.Thread(target=come, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert read_version(url)[0] == b"%d" % won[0]  # type: ignore[index]


@pytest.mark.parametrize("trouble", [{"lost": True}, {"status": 503}, {"drop": True}], ids=str)
def test_a_lost_answer_is_not_a_lost_race(google: Service, trouble: dict[str, int]) -> None:
    version = write_if("gs://bucket/x", b"before", None)
    google.trouble(match="POST", **trouble)
    after = write_if("gs://bucket/x", b"mine", version)
    assert read_version("gs://bucket/x") == (b"mine", after)


def test_a_lost_answer_of_amazons_is_not_a_lost_race(amazon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client asks a second time by itself, and finds its own first write in the way."""
    url = f"{amazon}/lease"
    version = write_if(url, b"before", None)
    fs, _ = file_system(url)
    call = fs._call_s3

    async def asking_twice(method: str, *args: Any, **kwargs: Any) -> Any:
        if method == "put_object":
            await call(method, *args, **kwargs)
        return await call(method, *args, **kwargs)

    monkeypatch.setattr(fs, "_call_s3", asking_twice)
    after = write_if(url, b"mine", version)
    assert read_version(url) == (b"mine", after)
    with pytest.raises(VersionConflict):
        write_if(url, b"of another", version)


def test_an_answer_that_breaks_off_is_read_again_and_one_that_always_does_is_a_sentence(
    amazon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ResponseStreamingError

    url = f"{amazon}/lease"
    version = write_if(url, b"whole", None)
    fs, _ = file_system(url)
    broken = [True, False, True, True, True]
    call = fs._call_s3

    async def breaking(method: str, *args: Any, **kwargs: Any) -> Any:
        answer = await call(method, *args, **kwargs)

        async def read() -> bytes:
            raise ResponseStreamingError(error="cut short")

        return {**answer, "Body": SimpleNamespace(read=read)} if broken.pop(0) else answer

    monkeypatch.setattr(fs, "_call_s3", breaking)
    assert read_version(url) == (b"whole", version)
    with pytest.raises(BucketError, match=r"s3://bucket-\w+ broke off while it was read .*: look whether the network"):
        read_version(url)


def test_no_bucket_is_no_race(google: Service) -> None:
    with pytest.raises(FileNotFoundError):
        write_if("gs://nowhere/x", b"1", None)
