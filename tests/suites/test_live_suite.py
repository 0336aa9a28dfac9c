"""The page of a suite follows its episodes, not too often, and spoils no run."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from lemur_ray.evaluation.suites.play import live_suite


def grow(ledger: Path) -> None:
    with ledger.open("a") as file:
        file.write("{}\n")


def test_the_page_is_written_as_episodes_come_and_not_without_them(tmp_path: Path) -> None:
    ledgers, written = [tmp_path / "a", tmp_path / "b"], threading.Semaphore(0)
    grow(ledgers[0])
    with live_suite(written.release, ledgers, every_s=0.01):
        assert not written.acquire(timeout=0.1), "nothing has ended since"
        for ledger in (ledgers[0], ledgers[1]):
            grow(ledger)
            assert written.acquire(timeout=60)
        assert not written.acquire(timeout=0.1)
    grow(ledgers[0])
    assert not written.acquire(timeout=0.1), "the run is over"


def test_a_page_that_takes_long_is_written_for_a_tenth_of_the_time(tmp_path: Path) -> None:
    ledger, began = tmp_path / "a", []

    def slow() -> None:
        began.append(time.monotonic())
        time.sleep(0.1)
        grow(ledger)

    with live_suite(slow, [ledger], every_s=0.01):
        grow(ledger)
        deadline = time.monotonic() + 60
        while len(began) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert began[1] - began[0] >= 0.9


def test_a_page_that_cannot_be_written_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger, tried = tmp_path / "a", threading.Semaphore(0)

    def fails() -> None:
        tried.release()
        raise OSError("no space left")

    with live_suite(fails, [ledger], every_s=0.01):
        grow(ledger)
        assert all(tried.acquire(timeout=60) for _ in range(3))
    assert capsys.readouterr().err.count("no space left") == 1
