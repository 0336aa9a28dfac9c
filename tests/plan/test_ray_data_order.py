"""What the feed relies on, and works around, in Ray Data: an upgrade of Ray that changes it should be noticed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray.data


def out_of_order(folder: Path, preserve_order: bool) -> list[int]:
    """Rows of two blocks whose second is finished before the first."""

    def wait_for_the_second(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 1:
            (folder / "second").touch()
            return row
        deadline = time.monotonic() + 120
        while not (folder / "second").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(2.0)  # in which the second block's result is seen first, on a busy machine too
        return row

    blocks = ray.data.from_arrow([pa.table({"id": [0]}), pa.table({"id": [1]})])
    dataset = blocks.map(wait_for_the_second, num_cpus=0.5)
    dataset.context.execution_options.preserve_order = preserve_order
    dataset.context.enable_progress_bars = False
    return [row["id"] for row in dataset.iter_rows()]


@pytest.mark.slow
def test_order_is_not_kept_by_default_and_is_kept_when_asked_for(ray_local: str, tmp_path: Path) -> None:
    assert ray.data.DataContext.get_current().execution_options.preserve_order is False
    (tmp_path / "kept").mkdir()
    assert out_of_order(tmp_path / "kept", preserve_order=True) == [0, 1]
    (tmp_path / "default").mkdir()
    assert out_of_order(tmp_path / "default", preserve_order=False) == [1, 0]


@pytest.mark.slow
def test_what_streaming_split_gives_a_rank_is_not_its_share_of_global_batches(ray_local: str) -> None:
    def rows(split: Any) -> list[int]:
        return [int(row["id"]) for row in split.iter_rows()]

    dataset = ray.data.range(64, override_num_blocks=8)
    dataset.context.execution_options.preserve_order = True
    dataset.context.enable_progress_bars = False
    splits = dataset.streaming_split(2, equal=True)
    both = ray.get([ray.remote(rows).remote(split) for split in splits])
    assert sorted(both[0] + both[1]) == list(range(64))
    first_halves_of_batches_of_4 = [i for i in range(64) if i % 4 < 2]
    assert first_halves_of_batches_of_4 not in both


def test_an_iterator_has_no_position_to_save_or_seek(ray_local: str) -> None:
    iterator = ray.data.range(4).iterator()
    assert not [name for name in dir(iterator) if any(word in name for word in ("state_dict", "seek", "resume"))]


def test_an_empty_range_is_a_dataset_without_rows(ray_local: str) -> None:
    assert list(ray.data.range(0).iterator().iter_batches(batch_size=4)) == []
