"""An option that names a file counts for what the file holds, wherever it lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.benchmarks.about import Run
from lemur_ray.benchmarks.contract import Asked
from lemur_ray.benchmarks.discovery import find


def as_file(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def as_folder(place: Path, text: str) -> Path:
    as_file(place / "javatuples-1.2.jar", text)
    return place


@pytest.mark.parametrize(
    ("name", "option", "made"),
    [
        ("gsm8k", "shots_file", as_file),
        ("robocodegen", "examples_file", as_file),
        ("multipl_e/java", "javatuples", as_folder),
        ("webarena/webarena", "task_file", as_file),
        ("webarena/webarena", "prompt_file", as_file),
    ],
)
def test_the_same_content_elsewhere_is_the_same_recipe_and_another_content_is_another(
    tmp_path: Path, name: str, option: str, made: Callable[[Path, str], Path]
) -> None:
    benchmark = find(name)

    def identity(**options: str) -> dict[str, Any]:
        return benchmark.identity_of(benchmark.options(**options), Asked(), "auto")

    here, there = (identity(**{option: str(made(tmp_path / place / "it", "one"))}) for place in ("here", "there"))
    assert here == there != identity()
    assert str(tmp_path) not in str(here)
    assert identity(**{option: str(made(tmp_path / "other/it", "two"))}) != here
    assert identity()[option] == "", "as in recipes of before"


def test_a_page_says_that_the_examples_were_others_and_not_their_digest() -> None:
    kept = {"mode": "lemur", "form": "base", "shots_file": "0123456789abcdef"}
    assert "another shots file" in find("gsm8k").about(Run("p", kept)).departures
