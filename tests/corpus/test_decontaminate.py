"""Thirteen words in a row that stand in a benchmark too: found whatever the case and punctuation, and never fewer."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from lemur_ray.corpus.cleaning.decontaminate import NgramIndex, benchmark_index, overlap

WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen"


@pytest.fixture
def index(tmp_path: Path) -> dict[int, str]:
    with gzip.open(tmp_path / "bench.jsonl.gz", "wt") as f:
        f.write(json.dumps({"task": {"question": f"Count: {WORDS}."}, "n": 3}) + "\n")
    return benchmark_index([tmp_path / "bench.jsonl.gz"])


def test_thirteen_words_in_a_row_are_found_and_twelve_are_not(index: dict[int, str]) -> None:
    assert overlap(["unrelated", f"It goes {WORDS.upper().replace(' ', ', ')}!"], index) == "bench.jsonl.gz"
    assert overlap([WORDS.removesuffix(" thirteen"), WORDS.replace("seven", "7")], index) is None


def test_a_file_without_texts_is_an_error_because_it_would_find_nothing(tmp_path: Path) -> None:
    (tmp_path / "short.json").write_text('["too short"]')
    with pytest.raises(ValueError, match=r"short\.json"):
        benchmark_index([tmp_path / "short.json"])


def test_an_index_of_many_texts_names_the_benchmark_of_each_contaminated_text(tmp_path: Path) -> None:
    other = " ".join(f"other{i}" for i in range(20))
    NgramIndex.of({"numbers": ["short", WORDS], "others": [other, WORDS]}).save(tmp_path / "index.npz")
    index = NgramIndex.load(tmp_path / "index.npz")
    texts = [f"x {WORDS.upper()}", "", WORDS.removesuffix(" thirteen"), f"{other} {WORDS}", "y " * 50, WORDS]
    assert index.first_owners(texts).tolist() == [0, -1, -1, 1, -1, 0]
    assert index.digest == NgramIndex.of({"a": [other, WORDS]}).digest != NgramIndex.of({"a": [other]}).digest
    with pytest.raises(ValueError, match="no benchmark has a text of 13 words"):
        NgramIndex.of({"numbers": ["short"]})
