"""A build and its processes killed at any moment, in a folder or a bucket: the same command ends in the same bytes."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lemur_ray.corpus import on_ray
from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.storage.file_system import file_system
from tests.storage.bucket_server import Service

FORKED = multiprocessing.get_context("fork")
MOMENTS = 30
_step: list[on_ray.Step] = []


def _run(table: pa.Table) -> pa.Table:
    return _step[0](table)


class Processes(on_ray.Workers):
    """As many processes of this host as there are workers, which are killed together with the one that builds."""

    def __init__(self, workers: int, must_see: Path | None = None) -> None:
        super().__init__(0)
        self.count = workers

    def map(self, tables: Sequence[pa.Table], step: on_ray.Step, memory: float = 0.0) -> Iterator[pa.Table]:
        _step[:] = [step]
        with FORKED.Pool(self.count) as pool:
            yield from pool.imap(_run, tables)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """16 files with a near duplicate."""
    (folder := tmp_path / "texts").mkdir()
    for number in range(16):
        words = np.random.default_rng(number % 15).choice(["the", "of", "and", "harvest"] * 9 + list("abcdefgh"), 300)
        (folder / f"{number}.txt").write_text(" ".join(words.tolist()) + " edited" * (number == 15))
    return folder


def content(corpus: str) -> dict[str, str]:
    """Content hash of every file of a corpus but its lock, by relative path."""
    fs, root = file_system(corpus)
    fs.invalidate_cache()
    paths = [path for path in fs.find(root) if not path.endswith("/.lock")]
    return {path.removeprefix(root): hashlib.sha256(fs.cat_file(path)).hexdigest() for path in paths}


def forked(act: Callable[[], object]) -> int:
    """Process id of a child, the leader of a process group, that acts and exits."""
    if child := os.fork():
        return child
    os.setsid()
    try:
        act()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("place", ["folder", "bucket"])
def test_a_build_killed_with_its_workers_at_thirty_moments_ends_in_the_same_bytes(
    place: str,
    workers: int,
    google: Service,
    texts: Path,
    tmp_path: Path,
    lemur_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lemur_ray.corpus.build.Workers", Processes)
    source, home = str(texts), str(tmp_path)
    if place == "bucket":
        source, home = "gs://bucket/texts", "gs://bucket"
        fs, there = file_system(source)
        for path in texts.iterdir():
            fs.put_file(str(path), f"{there}/{path.name}")
    config = CorpusConfig(
        source=(f"notes:text:{source}",), seq_len=64, vocab_size=300, part_mb=0.001, heldout_rows=2, near_duplicates=0.8
    )
    renames = FORKED.RawValue("q", 0)
    rename = os.replace

    def replace(*paths: str) -> None:
        rename(*paths)
        renames.value += 1  # without a lock, in which a process could be killed; a lost one does no harm

    def progress() -> int:
        return int(sum(google.asked.values()) if place == "bucket" else renames.value)

    def make(name: str, number: int) -> None:
        monkeypatch.setenv("LEMUR_HOME", str(lemur_home / name))
        build(config, f"{home}/{name}", workers=number, say=lambda line: None)

    monkeypatch.setattr(os, "replace", replace)
    os.waitpid(forked(lambda: make("first", workers)), 0)
    before = progress()
    os.waitpid(forked(lambda: make("whole", workers)), 0)
    steps, expected, killed = progress() - before, content(f"{home}/whole"), 0
    assert content(f"{home}/first") == expected
    assert "/manifest.json" in expected
    for moment in np.linspace(1, steps, MOMENTS, endpoint=False).astype(int).tolist():
        name, begin = f"killed-{moment}", progress()
        child = forked(lambda name=name: make(name, workers))  # type: ignore[misc]
        while progress() - begin < moment and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.0005)
        os.killpg(child, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert os.waitstatus_to_exitcode(os.waitpid(forked(lambda name=name: make(name, 5 - workers)), 0)[1]) == 0  # type: ignore[misc]
        assert content(f"{home}/{name}") == expected, f"killed at step {moment} of {steps}"
    print(f"{place}, {workers} workers: {killed} of {MOMENTS} killed in {steps} steps, equal bytes")
    assert killed >= MOMENTS - 5, "the others ended between two looks at them"
