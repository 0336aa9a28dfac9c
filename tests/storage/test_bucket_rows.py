"""Rows of a corpus in a bucket: shards that are read are copied, within a limit, or rows alone; the order stays."""

import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from lemur_ray.corpus.bucket_rows import LIMIT, BucketRows, open_rows, shard_cache
from lemur_ray.corpus.manifest import row_folder
from lemur_ray.corpus.rows import RowReader, RowSetError, RowWriter
from lemur_ray.plan.fetch import PlanReader, RankRows, iterate
from lemur_ray.plan.plan import Plan, PlanSource
from lemur_ray.storage.published_folder import publish
from tests.storage.bucket_server import Service

SEQ_LEN, SHARD_ROWS = 64, 8
URL = "gs://bucket/corpus"
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def corpus(google: Service, tmp_path: Path, lemur_home: Path) -> Path:
    """Row sets code (80 rows) and chat (24 rows, with marks) in shards of 8, on a disk and at URL."""
    folder, rng = tmp_path / "corpus", np.random.default_rng(0)
    for name, rows in (("code", 80), ("chat", 24)):
        with RowWriter(row_folder(folder, name), SEQ_LEN, vocab_size=512, shard_rows=SHARD_ROWS) as writer:
            for _ in range(rows):
                cut = int(rng.integers(1, SEQ_LEN))
                pieces = [rng.integers(0, 512, cut), rng.integers(0, 512, SEQ_LEN - cut)]
                marks = [rng.random(len(piece)) < 0.5 for piece in pieces]
                writer.write(pieces, marks if name == "chat" else None)
    (folder / "manifest.json").write_text("{}")
    publish(folder, URL, last="manifest.json")
    google.asked.clear()
    return folder


def same(found: object, corpus: Path, name: str, indices: list[int]) -> bool:
    expected = RowReader(row_folder(corpus, name)).read(np.array(indices))
    return all(np.array_equal(a, b) for a, b in zip(vars(found).values(), vars(expected).values(), strict=True))


def copies() -> int:
    return sum(path.is_dir() for path in shard_cache().folder.glob("*"))


def test_a_shard_is_copied_when_the_first_of_its_rows_is_read_and_never_twice(corpus: Path, google: Service) -> None:
    reader = open_rows(URL, "code")
    assert len(reader) == 80
    assert (copies(), shard_cache().folder.is_dir()) == (0, False)
    before = google.bytes_out
    assert same(reader.read(np.array([3, 1, 3])), corpus, "code", [3, 1, 3])
    shard = sum(file["bytes"] for file in reader.index["shards"][0]["files"].values())
    assert (copies(), google.bytes_out - before) == (1, shard)
    asked = google.asked.total()
    assert same(reader.read(np.arange(8)), corpus, "code", list(range(8)))
    assert google.asked.total() == asked
    assert same(reader.read(np.array([79, 8])), corpus, "code", [79, 8])
    assert copies() == 3
    again = BucketRows(f"{URL}/rows/code")  # another process of this host
    asked = google.asked.total()
    assert same(again.read(np.array([79, 0, 8])), corpus, "code", [79, 0, 8])
    assert google.asked.total() == asked
    with pytest.raises(IndexError, match=r"rows 80 to 80 of gs://.*code: it has rows 0 to 79"):
        reader.read(np.array([80]))


@pytest.mark.parametrize("name", ["code", "chat"])
def test_rows_alone_are_the_same_and_leave_nothing_on_the_disk(
    corpus: Path, google: Service, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(LIMIT, "0")
    reader, before = open_rows(URL, name), google.bytes_out
    assert same(reader.read(np.array([17, 0, 23, 17])), corpus, name, [17, 0, 23, 17])
    assert google.bytes_out - before < 4 * (2 * SEQ_LEN + SEQ_LEN // 8 + 16 + 8) + 1
    assert same(reader.read(np.array([], int)), corpus, name, [])
    assert not shard_cache().folder.exists()


def test_the_longest_unused_shard_goes_and_one_in_use_stays(
    corpus: Path, google: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = BucketRows(f"{URL}/rows/code")
    each = reader.size_bytes / 10
    monkeypatch.setenv(LIMIT, f"{2.5 * each / 1e9:.12f}")
    with reader._opened(0):
        for row in (8, 16, 24):
            reader.read(np.array([row]))
        there = [number for number in range(10) if (shard_cache().folder / reader._name(number)).is_dir()]
        assert there == [0, 3], "0 is in use, 3 was read last"
    assert same(reader.read(np.arange(80)), corpus, "code", list(range(80)))
    assert copies() <= 2


def test_every_host_reads_its_ranks_rows_in_the_order_of_one_disk_from_any_row(
    corpus: Path, google: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan((PlanSource("code", "code", 80, 5.0, 2.0), PlanSource("chat", "chat", 24, 1.0)), 4, 96)
    for start, hosts, limit in ((0, 4, "50"), (24, 2, "0"), (24, 2, "0.00001")):
        monkeypatch.setenv(LIMIT, limit)
        for host in range(hosts):
            monkeypatch.setenv("LEMUR_HOME", str(tmp_path / f"home-{start}-{limit}-{host}"))
            reader = PlanReader(plan, URL, hosts)
            mine = RankRows(start, plan.num_rows, 12, host, hosts)
            steps = iterate(plan, corpus, start, rows_per_step=12, rank=host, world_size=hosts)
            for step, expected in enumerate(steps):
                rows = mine.slice(step * mine.share, (step + 1) * mine.share)
                reader.bring(rows)
                found = reader.fetch(rows)
                assert found.keys() == expected.keys()
                assert all(np.array_equal(found[name], expected[name]) for name in expected)
            where = plan.rows(mine.slice(0, len(mine)))
            touched = set(zip(where.source.tolist(), (where.example // SHARD_ROWS).tolist(), strict=True))
            copied = {"50": touched, "0": set(), "0.00001": {one for one in touched if one[0] == 1}}[limit]
            assert copies() == len(copied), "of the larger source only rows come where it does not fit"


def test_too_small_a_disk_is_an_error_that_names_the_bytes(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan((PlanSource("code", "code", 80, 1.0),), 0, 80)
    reader = PlanReader(plan, URL)
    size = reader.readers[0].size_bytes
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 1000))
    with pytest.raises(
        RowSetError, match=rf"{size + 2**20} bytes are needed for the rows of {URL}.*{LIMIT}.* 1000 are free"
    ):
        reader.fetch(np.arange(2))
    with pytest.raises(RowSetError, match=rf"bytes are needed for {URL}/rows/code/00000, 1000 are free"):
        BucketRows(f"{URL}/rows/code").read(np.array([0]))
    monkeypatch.setenv(LIMIT, "0")
    assert PlanReader(plan, URL).fetch(np.arange(2))["tokens"].shape == (2, SEQ_LEN)
    monkeypatch.setenv(LIMIT, "much")
    with pytest.raises(RowSetError, match=f"{LIMIT}=much: expected a number of gigabytes"):
        PlanReader(plan, URL)


def test_a_shard_that_is_missing_cut_or_altered_is_named_and_is_no_copy(corpus: Path, google: Service) -> None:
    reader = BucketRows(f"{URL}/rows/code")
    fs, path = reader._fs, f"{reader._inner}/00000.tokens"
    good = fs.cat_file(path)
    google.trouble(match="00000.lengths", status=403, times=100)
    with pytest.raises(RowSetError, match=r"rows in gs://.* cannot be read: gs://bucket answered 403 .*give them"):
        reader.read(np.array([0]))
    google.troubles.clear()
    fs.pipe_file(path, good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(RowSetError, match=r"00000.tokens: its content differs from what was written"):
        reader.read(np.array([0]))
    fs.pipe_file(path, good[:100])
    with pytest.raises(RowSetError, match=rf"00000.tokens has 100 bytes, expected {len(good)} \(cut short\?\)"):
        reader.read(np.array([0]))
    with pytest.raises(RowSetError, match=r"00000.tokens has 100 bytes"):
        BucketRows(f"{URL}/rows/code")
    reader.whole = False
    with pytest.raises(RowSetError, match=r"00000.tokens|cannot be read"):
        reader.read(np.array([7]))
    fs.rm_file(path)
    with pytest.raises(RowSetError, match=r"00000.tokens is missing"):
        BucketRows(f"{URL}/rows/code")
    with pytest.raises(RowSetError, match=r"nothing is not there \(no rows.json\)"):
        BucketRows(f"{URL}/rows/nothing")
    assert copies() == 0
    fs.pipe_file(path, good)
    reader.whole = True
    assert same(reader.read(np.array([0, 7])), corpus, "code", [0, 7])
