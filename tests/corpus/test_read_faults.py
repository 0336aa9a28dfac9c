"""Faults of storage and of files: every document is read once, or the file is named; nothing is lost silently."""

from __future__ import annotations

import errno
import gzip
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lemur_ray.corpus.sources.file_parts import split_file
from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.corpus.sources.folders import folder_source
from lemur_ray.corpus.sources.texts import read_texts
from lemur_ray.outside_data import byte_stream
from lemur_ray.outside_data.byte_stream import BucketRanges, LocalRanges, ReadFailure
from lemur_ray.storage.file_system import file_system
from tests.corpus.document_files import LINES, PACKED, TEXTS, FaultyServer, outcome, positions, texts_of, zstd


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that a reader would have waited, in order; blocks are small, so that faults fall between them."""
    waited: list[float] = []
    monkeypatch.setattr(byte_stream.time, "sleep", waited.append)
    monkeypatch.setattr(byte_stream, "BLOCK", 32 << 10)
    return waited


@pytest.mark.parametrize("form", PACKED)
def test_a_transient_read_error_at_any_position_loses_nothing(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    data = PACKED[form](LINES)
    (path := tmp_path / "data").write_bytes(data)
    fetch = LocalRanges.fetch
    for position in positions(len(data)):
        failures = 3

        def faulty(self: LocalRanges, begin: int, end: int, position: int = position) -> bytes:
            nonlocal failures
            if begin <= position < end and failures:
                failures -= 1
                if failures == 1 and begin < position:
                    return fetch(self, begin, position)  # a short read
                raise OSError(errno.EIO, "Input/output error")
            return fetch(self, begin, end)

        monkeypatch.setattr(LocalRanges, "fetch", faulty)
        assert texts_of(str(path), len(data)) == TEXTS
    assert waits


@pytest.mark.parametrize("form", PACKED)
def test_a_lasting_read_error_at_any_position_is_a_failure_with_file_and_position(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = PACKED[form](LINES)
    (path := tmp_path / "data").write_bytes(data)
    fetch = LocalRanges.fetch
    for position in positions(len(data)):

        def faulty(self: LocalRanges, begin: int, end: int, position: int = position) -> bytes:
            if begin <= position < end:
                if begin < position:
                    return fetch(self, begin, position)
                raise OSError(errno.EIO, "Input/output error")
            return fetch(self, begin, end)

        monkeypatch.setattr(LocalRanges, "fetch", faulty)
        result = outcome(path, len(data))
        if isinstance(result, ReadFailure):
            assert (result.file, "byte" in result.position) == ("a", True)
            assert "Input/output error" in result.reason
        else:
            assert form == "parquet", "only between the columns of a parquet file is there anything to pass over"
            assert result == TEXTS


@pytest.mark.parametrize(
    ("form", "damage"),
    [("jsonl.gz", "cut"), ("jsonl.zst", "cut"), ("parquet", "cut"), ("jsonl.gz", "zeros"), ("parquet", "zeros")],
)
def test_a_cut_or_damaged_file_is_a_failure_at_any_position(form: str, damage: str, tmp_path: Path) -> None:
    """Damage that keeps a file decodable shows only by a checksum, which .zst files need not have."""
    data = PACKED[form](LINES)
    path = tmp_path / "data"
    for position in positions(len(data) - 80):
        begin = position + 16
        path.write_bytes(data[:begin] if damage == "cut" else data[:begin] + bytes(64) + data[begin + 64 :])
        result = outcome(path, path.stat().st_size)
        if isinstance(result, ReadFailure):
            assert (result.file, "document" in result.position) == ("a", True)
        else:
            assert damage == "zeros"
            assert result == TEXTS, "of the footer of a parquet file nothing was needed there"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], FaultyServer]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    servers: list[FaultyServer] = []

    def serve(data: bytes) -> FaultyServer:
        servers.append(FaultyServer(data))
        return servers[-1]

    yield serve
    for one in servers:
        one.close()


@pytest.mark.parametrize("fault", ["503", "429", "cut"])
@pytest.mark.parametrize("form", PACKED)
def test_a_server_that_fails_at_any_request_loses_nothing(
    form: str, fault: str, server: Callable[[bytes], FaultyServer], waits: list[float]
) -> None:
    web = server(PACKED[form](LINES))
    assert texts_of(web.url, len(web.data)) == TEXTS
    requests = web.requests
    for place in sorted({position * requests // len(web.data) for position in positions(len(web.data))}):
        web.faults[:] = [""] * place + [fault]
        assert texts_of(web.url, len(web.data)) == TEXTS
        assert not web.faults, "the fault was met"
    assert fault == "cut" or set(waits) == {7.0}, "the server says how long to wait"


def test_a_server_that_never_recovers_a_changed_and_a_removed_file_are_failures(
    server: Callable[[bytes], FaultyServer], waits: list[float]
) -> None:
    web = server(LINES)
    for faults, reason in (
        (["", "", *["503"] * 20], "answered 503 \\(8 tries\\)"),
        (["", "", "changed"], "changed since it was listed"),
        (["", "", "404"], "removed or renamed"),
        (["403"], "does not let you read it"),
        (["no size"], "does not tell the size"),
        (["other range"], "sent bytes from 1 on; asked for bytes from 0 on"),
    ):
        web.faults[:] = faults
        with pytest.raises(ReadFailure, match=reason):
            texts_of(web.url, len(LINES))


def test_a_server_without_ranges_is_read_once(server: Callable[[bytes], FaultyServer]) -> None:
    web = server(gzip.compress(LINES))
    web.ranges = False
    assert texts_of(web.url, len(web.data)) == TEXTS
    assert web.requests == 1


def test_a_file_that_is_truncated_while_it_is_read_is_a_failure(tmp_path: Path) -> None:
    (path := tmp_path / "data").write_bytes(LINES * 30)
    items = read_texts(FileRef(str(path), len(LINES) * 30, name="a"))
    next(items)
    os.truncate(path, len(LINES) * 29)
    with pytest.raises(ReadFailure, match="became shorter"):
        list(items)


def test_a_listed_file_that_grows_or_is_rewritten_is_a_failure(tmp_path: Path) -> None:
    (path := tmp_path / "data").write_bytes(LINES * 30)
    (ref,) = folder_source(f"mine:text:{path}").files
    items = read_texts(ref)
    next(items)
    path.write_bytes(LINES.swapcase() * 30)
    os.utime(path, ns=(0, 0))  # a coarse clock may give the old and the new content the same time
    with pytest.raises(ReadFailure, match="written to while it was read"):
        list(items)
    with path.open("ab") as file:
        file.write(LINES)
    with pytest.raises(
        ReadFailure, match=rf"opening: changed since .* {len(LINES) * 31} bytes; expected {len(LINES) * 30}"
    ):
        next(read_texts(ref))


def test_a_web_file_without_a_version_that_has_grown_is_a_failure(server: Callable[[bytes], FaultyServer]) -> None:
    web = server(LINES)
    (ref,) = folder_source(f"mine:text:{web.url}").files
    web.data += LINES
    with pytest.raises(ReadFailure, match="changed since it was listed"):
        next(read_texts(ref))


def test_a_web_file_sent_without_its_length_is_read_again_if_cut_and_a_failure_if_it_has_grown(
    server: Callable[[bytes], FaultyServer], waits: list[float]
) -> None:
    web = server(LINES)
    web.ranges = web.has_length = False
    (ref,) = folder_source(f"mine:text:{web.url}").files
    web.faults[:] = ["cut"]
    assert [item.text for item in read_texts(ref)] == TEXTS
    assert len(waits) == 1
    web.data += LINES
    with pytest.raises(ReadFailure, match=f"changed since .* {2 * len(LINES)} bytes; expected {len(LINES)} bytes"):
        next(read_texts(ref))


def test_a_web_file_that_was_listed_as_empty_is_a_failure_once_it_has_grown(
    server: Callable[[bytes], FaultyServer],
) -> None:
    web = server(b"")
    (ref,) = folder_source(f"mine:text:{web.url}").files
    assert not any(item.text for item in read_texts(ref))
    web.data = LINES
    with pytest.raises(ReadFailure, match="changed since it was listed"):
        next(read_texts(ref))


def test_an_object_without_a_version_that_has_grown_is_a_failure() -> None:
    fs, there = file_system("memory://grown/a.jsonl")
    fs.pipe_file(there, LINES)
    assert texts_of("memory://grown/a.jsonl", len(LINES)) == TEXTS
    fs.pipe_file(there, LINES * 2)
    with pytest.raises(ReadFailure, match=f"changed since .* {2 * len(LINES)} bytes; expected {len(LINES)} bytes"):
        texts_of("memory://grown/a.jsonl", len(LINES))


def test_an_object_that_a_bucket_lists_before_it_serves_it_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fs, there = file_system("memory://late/a.jsonl")
    fs.pipe_file(there, LINES)
    fetch, calls = BucketRanges.fetch, iter(range(100))

    def late(self: BucketRanges, begin: int, end: int) -> bytes:
        if next(calls) < 2:
            raise FileNotFoundError(there)
        return fetch(self, begin, end)

    monkeypatch.setattr(BucketRanges, "fetch", late)
    assert texts_of("memory://late/a.jsonl", len(LINES)) == TEXTS
    fs.rm_file(there)
    with pytest.raises(ReadFailure, match=r"a, byte 0 of \d+, .*FileNotFoundError.*3 tries"):
        texts_of("memory://late/a.jsonl", len(LINES), version="1")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_parts_of_a_file_hold_every_document_once(form: str, tmp_path: Path) -> None:
    data = PACKED[form](LINES)
    (path := tmp_path / "data").write_bytes(data)
    end, unit = (5, "groups") if form == "parquet" else (len(data), "bytes")
    inner = [2, 4] if form == "parquet" else [1, *positions(len(data)), LINES.index(b"\n"), LINES.index(b"\n") + 1]
    cuts = sorted({0, *inner, end})
    parts = [texts_of(str(path), len(data), part=(unit, a, b)) for a, b in itertools.pairwise(cuts)]
    assert [text for part in parts for text in part] == TEXTS


@pytest.mark.parametrize("place", ["folder", "bucket", "web"])
@pytest.mark.parametrize(("form", "parts"), [("jsonl", 6), ("parquet", 2), ("jsonl.gz", 1), ("jsonl.zst", 2)])
def test_a_large_file_is_split_into_parts_that_hold_every_document_once(
    form: str,
    parts: int,
    place: str,
    server: Callable[[bytes], FaultyServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lemur_ray.corpus.sources.file_parts._REMOTE_PART_BYTES", 1)
    data = PACKED[form](LINES)
    (path := tmp_path / f"data.{form}").write_bytes(data)
    fs, there = file_system(f"memory://parts/data.{form}")
    fs.pipe_file(there, data)
    address = {"folder": path, "bucket": f"memory://parts/data.{form}", "web": server(data).url}[place]
    (ref,) = folder_source(f"mine:text:{address}").files
    refs = split_file(ref, len(data) / (6 if form == "jsonl" else 3))
    assert len(refs) == (1 if form == "jsonl.zst" and place != "folder" else parts)
    assert [item.text for part in refs for item in read_texts(FileRef(*part.to_json()))] == TEXTS


def frames(cuts: list[int], table: bool = False) -> bytes:
    """The lines as frames of zstd that are cut anywhere, with the table of frames of its seekable format or without."""
    pieces = [zstd(LINES[begin:end]) for begin, end in itertools.pairwise([0, *cuts, len(LINES)])]
    skipped = b"\x50\x2a\x4d\x18" + (7).to_bytes(4, "little") + b"skipped"
    entries = b"".join(len(one).to_bytes(4, "little") + bytes(4) for one in pieces)
    footer = len(pieces).to_bytes(4, "little") + b"\0" + bytes.fromhex("b1ea928f")
    seek = b"\x5e\x2a\x4d\x18" + (len(entries) + 9).to_bytes(4, "little") + entries + footer
    return b"".join(pieces) + seek if table else skipped + b"".join(pieces)


@pytest.mark.parametrize("table", [False, True])
def test_runs_of_frames_of_zstd_hold_every_document_once_wherever_frames_end(table: bool, tmp_path: Path) -> None:
    lines = [at + 1 for at, byte in enumerate(LINES) if byte == 10][:-1]
    inside = lines[200]  # several frames within one line, and one that ends with it
    cuts = sorted({*positions(len(LINES)), inside, inside + 3, inside + 5, inside + 7, lines[201], lines[300]})
    (path := tmp_path / "data.jsonl.zst").write_bytes(data := frames(cuts, table))
    (ref,) = folder_source(f"mine:text:{path}").files
    refs = split_file(ref, 1)
    assert len(refs) >= len(cuts)
    assert [item.text for part in refs for item in read_texts(part)] == TEXTS
    few = split_file(ref, len(data) / 5)
    assert 3 <= len(few) <= 5
    assert [item.text for part in few for item in read_texts(part)] == TEXTS


def test_damage_in_one_frame_of_zstd_costs_its_part_alone(tmp_path: Path) -> None:
    cuts = [at + 1 for at, byte in enumerate(LINES) if byte == 10][39::40][:-1]
    data = frames(cuts)
    (path := tmp_path / "data.jsonl.zst").write_bytes(data)
    (ref,) = folder_source(f"mine:text:{path}").files
    refs = split_file(ref, len(data) / 9)
    begin = refs[4].part[1]
    for damaged in (data[: begin + 40] + bytes(64) + data[begin + 104 :], data[: refs[-1].part[1] + 50]):
        path.write_bytes(damaged)
        (ref,) = folder_source(f"mine:text:{path}").files
        outcomes = [
            outcome(path, part.size, part=part.part, file_size=part.file_size)
            for part in split_file(ref, len(data) / 9)
        ]
        failed = [number for number, one in enumerate(outcomes) if isinstance(one, ReadFailure)]
        assert all(" to " in str(outcomes[number]) for number in failed), "the run of frames is named"
        assert 1 <= len(failed) <= 2, "the part before reads the first line of the next one"
        read = [text for one in outcomes if not isinstance(one, ReadFailure) for text in one]
        assert len(read) >= 0.7 * len(TEXTS)
        assert [text for text in TEXTS if text in set(read)] == read
