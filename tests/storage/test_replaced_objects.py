"""An object of a bucket that is replaced after it was listed, before or while it is read, is a failure."""

import pytest

from lemur_ray.outside_data import byte_stream
from lemur_ray.outside_data.byte_stream import ReadFailure, open_stream
from lemur_ray.outside_data.file_lists import list_files
from lemur_ray.storage.file_system import file_system

OLD, NEW, BLOCK = b"old " * 1000, b"new " * 1000, 1024


@pytest.fixture(params=["google", "amazon"])
def folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a folder of a bucket that holds one object, ``a.txt``."""
    monkeypatch.setattr(byte_stream, "BLOCK", BLOCK)
    if request.param == "google":
        request.getfixturevalue("google")
        url = "gs://bucket/texts"
    else:
        url = f"{request.getfixturevalue('amazon')}/texts"
    put(url, OLD)
    return url


def put(folder: str, data: bytes) -> None:
    fs, path = file_system(f"{folder}/a.txt")
    fs.pipe_file(path, data)


def test_an_object_that_stays_is_read_whole(folder: str) -> None:
    [file] = list_files(f"{folder}/*.txt")
    assert file.version
    with open_stream(file.uri, file.name, size=file.size, version=file.version) as stream:
        assert stream.read() == OLD


@pytest.mark.parametrize("read_before", [0, BLOCK])
def test_an_object_that_is_replaced_by_one_of_the_same_size_is_a_failure(folder: str, read_before: int) -> None:
    [file] = list_files(f"{folder}/*.txt")
    with byte_stream.ByteStream(file.uri, file.name, size=file.size, version=file.version) as stream:
        assert stream.read(read_before) == OLD[:read_before]
        put(folder, NEW)
        with pytest.raises(ReadFailure, match=rf"a.txt, byte {read_before} of 4000: changed since it was listed"):
            stream.read()
