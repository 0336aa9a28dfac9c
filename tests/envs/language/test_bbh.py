"""BIG-Bench Hard: the published outputs come to the published numbers, under both rules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from envs.language.bbh.answers import grade_cot, grade_direct, grade_lemur, lemur_answer, macro_averages
from lemur_ray.benchmarks.rows import read_rows, row_number
from tests.envs.questions import Says, golds, play, tasks_of

DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
needs_data = pytest.mark.skipif(not (DATA / "bench/bbh").is_dir(), reason="needs BIG-Bench Hard beneath LEMUR_DATA")
RELAXED = "no case, no punctuation"
PUBLISHED = {
    "cot": {"": (73.70, 73.98), f", {RELAXED}": (73.85, 74.15)},
    "direct": {"": (52.72, 56.53), f", {RELAXED}": (53.22, 57.12)},
}


def recorded(kind: str) -> dict[str, str]:
    """The published outputs by task."""
    said = {}
    for file in (DATA / "bench/bbh_outputs" / kind).glob("*.jsonl.gz"):
        name = file.name.split(".")[0]
        said |= {f"bbh/{name}/{row_number(row, n)}": row["prediction"] for n, row in enumerate(read_rows(file))}
    return said


@needs_data
@pytest.mark.parametrize("kind", [pytest.param("cot", marks=pytest.mark.slow), "direct"])
def test_published_outputs_come_to_the_published_means(kind: str, tmp_path: Path) -> None:
    tasks = tasks_of(f"bbh/{kind}", DATA)
    assert len(tasks) == 3256
    found = macro_averages(play(tasks, Says(recorded(kind)), tmp_path, in_flight=16))
    assert found["files"] == 27
    for rule, (files, merged) in PUBLISHED[kind].items():
        assert round(100 * found[f"mean_of_files{rule}"], 2) == files
        assert round(100 * found[f"mean_of_tasks{rule}"], 2) == merged


@needs_data
@pytest.mark.slow
def test_the_released_rule_reads_worked_answers_as_it_did(tmp_path: Path) -> None:
    tasks = tasks_of("bbh/cot", DATA, mode="lemur")
    found = macro_averages(play(tasks, Says(recorded("cot")), tmp_path, in_flight=16))
    assert round(100 * found["mean_of_files"], 1) == 1.7


@needs_data
@pytest.mark.parametrize("mode", ["standard", "lemur"])
def test_golds_are_right(mode: str, tmp_path: Path) -> None:
    for kind in ("cot", "direct"):
        some = tasks_of(f"bbh/{kind}", DATA, mode=mode)[::13]
        (tmp_path / kind).mkdir()
        found = golds(some, tmp_path / kind)
        assert all(found.values()), [task for task, right in found.items() if not right]


@needs_data
def test_examples_are_the_authors_and_direct_ones_hold_answers_alone() -> None:
    direct, cot = (tasks_of(f"bbh/{kind}", DATA, form="base")[0].options for kind in ("direct", "cot"))
    assert "canary" not in direct["shots"] + cot["shots"]
    assert direct["shots"].count("Q: ") == cot["shots"].count("Q: ") == 3
    assert "is\nA: False\n\nQ: " in direct["shots"]
    assert direct["prompt"].endswith("\nA: ")
    assert cot["shots"].count("step by step") == 3
    assert cot["prompt"].endswith("A: Let's think step by step.\n")
    released = tasks_of("bbh/direct", DATA, mode="lemur")[0].options
    assert "A: False.\n" in released["shots"]


def says(reference: str) -> Mapping[str, Any]:
    return {"reference": reference}


def test_standard_is_exact_and_the_released_rule_drops_signs_and_brackets() -> None:
    assert grade_cot("Hence the answer is -4. Yes.", says("-4")).score == 1
    assert grade_cot("Hence the answer is 4.", says("-4")).score == 0
    twice = grade_cot("So the answer is (B). No, the answer is (C).", says("(B)"))
    assert (twice.score, twice.scores["flexible"]) == (1, 0), "published: the first answer; a person reads the last"
    assert grade_direct(" (B) ", says("(B)")).score == 1
    assert grade_direct("b", says("(B)")).score == 0
    assert grade_lemur("4", says("-4")).score == 1
    assert grade_lemur("]", says(")")).score == 1
    assert grade_lemur("A: True", says("True")).score == 1
    assert grade_lemur("A: True", {**says("True"), "prefill": "A:"}).score == 0, (
        "said twice, as the released rule has it"
    )
    assert lemur_answer("(B) because (A) is not. So") == "B"
    assert lemur_answer("first part\n\nsecond (A)") == "first part"
