"""Row sets: what is written is read, at random, and a set that is cut short is noticed and named."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lemur_ray.corpus.bucket_rows import most_pieces
from lemur_ray.corpus.rows import RowReader, RowSetError, RowWriter

SEQ_LEN = 12


@st.composite
def rows(draw: st.DrawFn) -> list[list[list[int]]]:
    """Rows of pieces of token ids."""
    out = []
    for _ in range(draw(st.integers(1, 12))):
        room, row = SEQ_LEN, []
        while room and (not row or draw(st.booleans())):
            length = draw(st.integers(1, room))
            row.append(draw(st.lists(st.integers(0, 69_999), min_size=length, max_size=length)))
            room -= length
        out.append(row)
    return out


def write(folder: Path, rows: list[list[list[int]]], vocab_size: int = 70_000, shard_rows: int = 5) -> None:
    with RowWriter(folder, SEQ_LEN, vocab_size=vocab_size, pad_id=3, shard_rows=shard_rows) as writer:
        for row in rows:
            writer.write([np.array(piece) for piece in row])


@given(rows(), st.data())
@settings(max_examples=60, deadline=None)
def test_rows_come_back_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[list[int]]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    write(folder / "set", rows)
    reader = RowReader(folder / "set")
    assert len(reader) == len(rows)
    assert reader.num_tokens == sum(len(piece) for row in rows for piece in row)
    wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=20))
    packed = reader.read(np.array(wanted))
    for k, index in enumerate(wanted):
        flat = [token for piece in rows[index] for token in piece]
        assert packed.tokens[k].tolist() == flat + [3] * (SEQ_LEN - len(flat))
        segments = [number for number, piece in enumerate(rows[index], start=1) for _ in piece]
        assert packed.segment_ids[k].tolist() == segments + [0] * (SEQ_LEN - len(flat))
        targets = [t for piece in rows[index] for t in [*piece[1:], 0]]
        assert packed.targets[k].tolist() == targets + [0] * (SEQ_LEN - len(flat))


def test_trained_marks_survive_the_disk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    marks = [rng.random(SEQ_LEN) < 0.5 for _ in range(9)]
    with RowWriter(tmp_path / "set", SEQ_LEN, vocab_size=99, shard_rows=4) as writer:
        for mark in marks:
            writer.write([np.arange(SEQ_LEN)], [mark])
    weights = RowReader(tmp_path / "set").read(np.arange(9)).loss_weights
    for k, mark in enumerate(marks):
        assert weights[k].tolist() == [*mark[1:].astype(float), 0.0]


def test_other_files_in_the_folder_may_vanish_while_a_set_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "set", [[[1, 2]]])
    temporary = tmp_path / "set" / ".rows.json.0123456789ab.part"
    temporary.touch()
    scandir = os.scandir

    def scan(folder: Any) -> Any:
        with scandir(folder) as entries:
            listed = list(entries)
        temporary.unlink(missing_ok=True)
        return contextlib.nullcontext(listed)

    monkeypatch.setattr(os, "scandir", scan)
    assert len(RowReader(tmp_path / "set")) == 1


def test_small_vocabularies_take_two_bytes_a_token_and_large_ones_four(tmp_path: Path) -> None:
    write(tmp_path / "small", [[[1, 2]]], vocab_size=65_536)
    write(tmp_path / "large", [[[1, 2]]], vocab_size=65_537)
    assert (tmp_path / "small" / "00000.tokens").stat().st_size == 2 * SEQ_LEN
    assert (tmp_path / "large" / "00000.tokens").stat().st_size == 4 * SEQ_LEN


def test_a_set_without_its_manifest_does_not_exist(tmp_path: Path) -> None:
    write(tmp_path / "set", [[[1]]] * 7)
    (tmp_path / "set" / "rows.json").unlink()
    with pytest.raises(RowSetError, match="half-written"):
        RowReader(tmp_path / "set")
    with pytest.raises(RowSetError, match="not there"):
        RowReader(tmp_path / "other")


def test_a_writer_that_fails_commits_nothing_and_hides_the_set_before_it(tmp_path: Path) -> None:
    write(tmp_path / "set", [[[1]]])

    def fail() -> None:
        with RowWriter(tmp_path / "set", SEQ_LEN, vocab_size=9, shard_rows=1) as writer:
            writer.write([np.array([1])])
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    with pytest.raises(RowSetError, match="half-written"):
        RowReader(tmp_path / "set")


READ_BY_THREADS = """
import os, resource, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
from lemur_ray.corpus.rows import RowReader
opened = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 125, opened + 125))
readers = [RowReader(Path(sys.argv[1], name)) for name in ("one", "two")]
wanted = np.random.default_rng(0).integers(0, int(sys.argv[2]), 300)
with ThreadPoolExecutor(4) as threads:
    packed = list(threads.map(lambda reader: reader.read(wanted), readers * 3))
assert all((one.tokens[:, 0] == wanted).all() for one in packed)
"""


def test_sets_of_more_shards_than_a_process_may_open_files_are_read_by_threads(tmp_path: Path) -> None:
    """In a process of its own: the limit would hold for whatever else runs in this one. Of 360 files 96 are kept open,
    and each thread may have three more that are just opened or put away."""
    count = 60
    for name in ("one", "two"):
        write(tmp_path / name, [[[index] * 5] for index in range(count)], shard_rows=1)
    subprocess.run([sys.executable, "-c", READ_BY_THREADS, tmp_path, str(count)], check=True)


@pytest.mark.parametrize("kind", ["tokens", "lengths", "starts"])
def test_a_shard_that_is_cut_short_or_missing_is_named(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "set", [[[1, 2], [3]]] * 7)
    shard = tmp_path / "set" / f"00001.{kind}"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(RowSetError, match=rf"00001\.{kind} has \d+ bytes, expected \d+"):
        RowReader(tmp_path / "set")
    shard.unlink()
    with pytest.raises(RowSetError, match=rf"00001\.{kind} is missing"):
        RowReader(tmp_path / "set")


def test_a_flipped_byte_is_found_by_verify(tmp_path: Path) -> None:
    write(tmp_path / "set", [[[1, 2], [3]]] * 7)
    RowReader(tmp_path / "set").verify()
    shard = tmp_path / "set" / "00000.tokens"
    shard.write_bytes(b"\xff" + shard.read_bytes()[1:])
    with pytest.raises(RowSetError, match=r"00000\.tokens: its content differs"):
        RowReader(tmp_path / "set").verify()


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 99}'])
def test_a_manifest_that_is_not_ours_is_refused(tmp_path: Path, content: str) -> None:
    write(tmp_path / "set", [[[1]]])
    (tmp_path / "set" / "rows.json").write_text(content)
    with pytest.raises(RowSetError, match="build the corpus again"):
        RowReader(tmp_path / "set")


@pytest.mark.parametrize(
    ("pieces", "message"),
    [([], "expected 1 to 12 tokens"), ([[1] * 13], "expected 1 to 12"), ([[1], []], "no empty piece"), ([[9]], "to 8")],
)
def test_a_row_that_does_not_fit_is_refused(tmp_path: Path, pieces: list[list[int]], message: str) -> None:
    writer = RowWriter(tmp_path / "set", SEQ_LEN, vocab_size=9)
    with pytest.raises(ValueError, match=message):
        writer.write([np.array(piece, int) for piece in pieces])


def test_marks_for_some_rows_only_are_refused(tmp_path: Path) -> None:
    writer = RowWriter(tmp_path / "set", SEQ_LEN, vocab_size=9)
    writer.write([np.array([1, 2])], [np.array([True, False])])
    with pytest.raises(ValueError, match="for all or for none"):
        writer.write([np.array([1, 2])])


def test_a_row_number_outside_the_set_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "set", [[[1]]] * 3)
    with pytest.raises(IndexError, match="it has rows 0 to 2"):
        RowReader(tmp_path / "set").read(np.array([0, 3]))


def test_a_reader_that_has_read_can_be_pickled_small(tmp_path: Path) -> None:
    write(tmp_path / "set", [[[1, 2, 3]]] * 3)
    reader = RowReader(tmp_path / "set")
    before = reader.read(np.arange(3)).tokens
    copy = pickle.loads(pickle.dumps(reader))
    np.testing.assert_array_equal(copy.read(np.arange(3)).tokens, before)


def test_the_most_pieces_of_a_row_are_those_of_the_fullest_shard(tmp_path: Path) -> None:
    write(tmp_path, [[[1], [2]], [[3]], [[1], [2], [3], [4]], [[5, 6]], [[7]], [[1], [2], [3]]], shard_rows=2)
    assert most_pieces(str(tmp_path), RowReader(tmp_path).index) == 4
