"""GSM8K: which number counts as the answer, against the labels that its authors published."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from envs.language.gsm8k.numbers import equal, grade, lemur_answer, standard_answer
from lemur_ray.benchmarks.rows import read_rows
from lemur_ray.rollout.evaluation_config import EvalConfig
from tests.envs.questions import golds, tasks_of

DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
needs_data = pytest.mark.skipif(not (DATA / "bench/gsm8k").is_dir(), reason="needs GSM8K beneath LEMUR_DATA")
MODELS = {"6b_finetuning": 145, "6b_verification": 257, "175b_finetuning": 211, "175b_verification": 373}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("So the answer is 1,234,567.", "1234567"),
        ("She pays $18.50 in all.", "18.50"),
        ("it falls by -3", "-3"),
        ("10-3", "3"),
        ("It is -$5", "-5"),
        ("about 25%.", "25"),
        ("nothing", None),
    ],
)
def test_the_last_number_is_the_answer(text: str, answer: str | None) -> None:
    assert standard_answer(text) == answer


def test_the_released_rule_keeps_its_faults() -> None:
    assert lemur_answer("it falls by -3") == "3"
    assert lemur_answer("1,2,3") == "3"
    reference = {"answer": "36", "rule": "lemur"}
    assert grade("3.6", {"reference": reference}).score == 1
    assert grade("3.6", {"reference": {**reference, "rule": "standard"}}).score == 0


def test_numbers_are_compared_as_numbers() -> None:
    assert equal("18.0", "18")
    assert not equal("18.1", "18")


@needs_data
def test_verdicts_are_those_of_the_authors_labels() -> None:
    rows = list(read_rows(DATA / "bench/gsm8k/labelled_model_solutions.jsonl.gz"))
    agreed: Counter[str] = Counter()
    wrong = {"standard": [0, 0], "lemur": [0, 0]}
    for row in rows:
        reference = row["ground_truth"].rpartition("A:")[2].strip()
        for model in MODELS:
            said, label = row[model]["solution"].rpartition("A:")[2], row[model]["is_correct"]
            for rule, counts in wrong.items():
                right = grade(said, {"reference": {"answer": reference, "rule": rule}}).score == 1
                counts[0] += right and not label
                counts[1] += label and not right
                agreed[model] += rule == "standard" and right
    assert agreed == MODELS
    assert wrong == {"standard": [0, 0], "lemur": [6, 0]}


@needs_data
def test_every_gold_is_right_and_tasks_are_called_by_their_rows(tmp_path: Path) -> None:
    tasks = tasks_of("gsm8k", DATA)
    assert [task.id for task in tasks[:2]] == ["gsm8k/test/0", "gsm8k/test/1"]
    assert len(tasks) == 660
    found = golds(tasks, tmp_path)
    assert all(found.values()), [task for task, right in found.items() if not right]


def test_a_row_that_says_its_number_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "gsm8k").mkdir()
    rows = [
        {"question": f"{n}?", "answer": f"#### {n}"} | said for n, said in ((7, {"i": 7}), (9, {"index": 9}), (2, {}))
    ]
    (tmp_path / "gsm8k/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [task.id for task in tasks_of("gsm8k", tmp_path, shots=0)] == [f"gsm8k/test/{n}" for n in (7, 9, 2)]


@needs_data
def test_a_base_model_goes_on_with_one_text_and_examples_are_one_line_each() -> None:
    task = tasks_of("gsm8k", DATA, form="base", shots=2)[0]
    assert task.options["raw"]
    assert task.options["stop"] == ["\n"]
    text = task.options["shots"] + task.options["prompt"]
    assert text.count("\nAnswer: ") == 2
    assert text.endswith("?\nAnswer:")
    assert "<<" not in text
    assert "So the answer is 72." in text


def test_no_flag_of_these_hides_one_of_the_evaluation() -> None:
    from lemur_ray.benchmarks.discovery import find, names
    from lemur_ray.rollout.benchmark_tasks import options_of

    assert all(options_of(name, find(name)) for name in names())
    assert EvalConfig(options=None, benchmark="gsm8k").top_p == 1
