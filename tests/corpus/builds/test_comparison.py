"""Near duplicates and texts of benchmarks in a whole build: what is dropped, counted, and left as it is."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from small_corpora import quiet, small_config, texts_in

from lemur_ray.corpus.build import build
from lemur_ray.corpus.manifest import CorpusError

QUESTION = "A farmer has three fields of wheat and two of barley, and each gives nine bags; how many bags are there?"


def prose(seed: int, extra: str = "") -> str:
    draw = random.Random(seed)
    words = [draw.choice(["the", "of", "and", "harvest", "river", f"name{draw.randrange(300)}"]) for _ in range(200)]
    return " ".join([*words, extra])


@pytest.fixture
def sources(tmp_path: Path) -> tuple[str, str]:
    """Six texts each; three of ``second`` are copies of one of ``first`` with a word more, one has the question."""
    for name, texts in (
        ("first", [prose(i) for i in range(6)]),
        ("second", [*(prose(1, f"edited {i}") for i in range(3)), prose(50), prose(51), prose(52, QUESTION)]),
    ):
        (tmp_path / name).mkdir()
        for number, text in enumerate(texts):
            (tmp_path / name / f"{number}.txt").write_text(text)
    return f"first:text:{tmp_path / 'first'}", f"second:text:{tmp_path / 'second'}"


def built(sources: tuple[str, ...], out: Path, workers: int = 0, **changes: Any) -> dict[str, Any]:
    config = small_config(sources, heldout_rows=0, part_mb=0.002, **changes)
    return build(config, out, benchmarks={"farm": [QUESTION]}, workers=workers, say=quiet)


def test_near_duplicates_of_all_sources_are_dropped_where_asked(sources: tuple[str, str], tmp_path: Path) -> None:
    plain = built(sources, tmp_path / "plain")
    assert [plain["counts"][name]["kept"] for name in ("first", "second")] == [6, 6]
    made = built(sources, tmp_path / "out", near_duplicates=0.8)
    assert (made["counts"]["first"]["kept"], made["counts"]["second"]["kept"]) == (6, 3)
    assert made["counts"]["second"]["dropped"] == {"near_duplicate": 3}
    assert plain["build"] != made["build"]
    assert "near_duplicates" not in plain["config"]
    assert not any("edited" in text for text in texts_in(tmp_path / "out", "second"))


def test_texts_of_benchmarks_are_dropped_and_counted_by_benchmark(sources: tuple[str, str], tmp_path: Path) -> None:
    made = built(sources, tmp_path / "out", decontaminate=True)
    assert made["counts"]["second"]["dropped"] == {"benchmark": 1}
    assert made["benchmark_overlaps"] == {"farm": 1}
    assert made["config"]["benchmarks"]
    with pytest.raises(CorpusError, match="no benchmark has a text of 13 words"):
        build(small_config(sources, decontaminate=True), tmp_path / "none", workers=0, say=quiet)


def test_ray_data_compares_as_one_process_does(sources: tuple[str, str], ray_local: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"near_duplicates": 0.8, "decontaminate": True}
    one = built(sources, tmp_path / "one", **changes)
    assert built(sources, tmp_path / "two", workers=2, **changes) == one
    assert one["counts"]["second"]["kept"] == 2
