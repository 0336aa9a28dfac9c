"""A worker that gets no rows says why, and goes on as soon as they come."""

import threading
import time
from collections.abc import Iterator

import pytest
import ray

from lemur_ray.train.on_ray.rows import stream_with_stall_reports, why_no_rows


def test_a_stream_that_stands_still_is_explained_once_and_nothing_of_it_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, told = [], threading.Event()
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    monkeypatch.setattr(ray, "available_resources", dict)

    def say(line: str) -> None:
        said.append(line)
        told.set()

    def slow() -> Iterator[int]:
        yield 0
        assert told.wait(60)
        yield 1

    items = stream_with_stall_reports(slow, say, after_s=0.3)
    assert next(items) == 0
    time.sleep(0.5)  # who works on a row does not wait for one
    assert said == []
    assert list(items) == [1]
    assert len(said) == 1
    assert "0 of 2 CPUs in the cluster are free" in said[0]
    assert "--mesh.cpus-per-worker" in said[0]


def test_a_slow_corpus_is_not_taken_for_a_full_cluster() -> None:
    assert "slow to read" in why_no_rows(61.0, {"CPU": 4.0}, {"CPU": 1.5})
