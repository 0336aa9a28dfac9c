"""Lines appended to a file in a bucket: each byte is sent once, and a writer that was replaced changes nothing."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from lemur_ray.storage import append_file
from lemur_ray.storage.append_file import AppendFile
from lemur_ray.storage.conditional_writes import read_version
from lemur_ray.storage.file_system import file_system
from tests.storage.bucket_server import Service

URL = "gs://bucket/run/metrics.jsonl"


class Overtaken(Exception):
    pass


def content(url: str) -> bytes:
    stored = read_version(url)
    return stored[0] if stored else b""


@pytest.fixture(params=["gs", "s3", "memory", "disk"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "gs":
        request.getfixturevalue("google")
        return URL
    if request.param == "s3":
        return f"{request.getfixturevalue('amazon')}/metrics.jsonl"
    return f"memory:/{tmp_path}/metrics.jsonl" if request.param == "memory" else str(tmp_path / "metrics.jsonl")


def test_lines_are_stored_in_order_and_the_next_writer_goes_on_after_a_torn_one(
    url: str, request: pytest.FixtureRequest
) -> None:
    file = AppendFile(url)
    for number in range(5):
        file.write(b"%d\n" % number)
    file.close()
    assert content(url) == b"0\n1\n2\n3\n4\n"
    on_purpose = request.getfixturevalue("google").history.tampering() if url == URL else contextlib.nullcontext()
    with on_purpose:
        torn = AppendFile(url)
        torn.write(b"5\ntorn")
        torn.close()
        following = AppendFile(url)
    assert following.content == b"0\n1\n2\n3\n4\n5\n"
    following.write(b"6\n")
    following.close()
    assert content(url) == b"0\n1\n2\n3\n4\n5\n6\n"


def test_what_was_sent_is_not_sent_again(google: Service) -> None:
    file, line = AppendFile(URL), b"x" * 999 + b"\n"
    sent = []
    for _ in range(40):
        before = google.bytes_in
        file.append(line)
        sent.append(google.bytes_in - before)
    file.close()
    assert content(URL) == 40 * line
    assert max(sent) < 1.5 * len(line), "as many bytes for the last line as for the first"
    assert [name for name in google.objects.names("bucket") if "part-" in name] == []


def test_lines_of_some_seconds_are_one_upload_off_the_path_of_the_writer(google: Service) -> None:
    file = AppendFile(URL)
    google.trouble(match="POST .*(upload|compose)", stop=True, times=1)  # an upload that never ends delays no writer
    asked = google.asked.total()
    for number in range(1000):
        file.write(b"%d\n" % number)
    assert google.asked.total() == asked
    google.troubles.clear()
    file.close()
    assert content(URL).count(b"\n") == 1000
    assert google.asked["POST upload"] == 1


def test_an_upload_happens_by_itself_after_some_seconds(google: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_file, "UPLOAD_EVERY_S", 0.05)
    file = AppendFile(URL)
    file.write(b"1\n")
    while content(URL) != b"1\n":
        pass
    file.close()


@pytest.mark.parametrize("match", ["upload", "compose"])
def test_a_lost_response_stores_nothing_twice(google: Service, match: str) -> None:
    file = AppendFile(URL)
    file.append(b"1\n")
    google.trouble(match=f"POST .*{match}", lost=True)
    file.append(b"2\n")
    file.append(b"3\n")
    file.close()
    assert content(URL) == b"1\n2\n3\n"


def test_a_replaced_writer_raises_and_changes_nothing(google: Service) -> None:
    newest: list[str] = []

    def check_of(name: str) -> Callable[[], None]:
        newest.append(name)

        def check() -> None:
            if newest[-1] != name:
                raise Overtaken

        return check

    older = AppendFile(URL, check_of("older"))
    older.append(b"1\n")
    newer = AppendFile(URL, check_of("newer"))
    newer.append(b"2\n")
    older.write(b"of the older one\n")
    with pytest.raises(Overtaken):
        older.flush()
    newer.append(b"3\n")
    assert content(URL) == b"1\n2\n3\n"


def test_what_a_writer_left_that_was_killed_in_an_upload_is_removed_by_the_next_one(google: Service) -> None:
    AppendFile(URL).append(b"1\n")
    fs, path = file_system(URL)
    for name in (f"{path}.part-0123456789ab", path.replace("metrics", "goodput") + ".part-0123456789ab"):
        fs.pipe_file(name, b"never joined\n")
    AppendFile(URL).append(b"2\n")
    assert content(URL) == b"1\n2\n"
    assert [name for name in google.objects.names("bucket") if "part-" in name] == [
        "run/goodput.jsonl.part-0123456789ab"
    ], "another file's may still be joined"


def test_a_line_that_slips_in_during_the_replacement_is_taken_out_again(google: Service) -> None:
    newer = AppendFile(URL)
    newer.append(b"1\n")
    with google.history.tampering():
        AppendFile(URL).append(b"late\n")  # its check passed before the newer one began
        newer.append(b"2\n")
    assert content(URL) == b"1\n2\n"
