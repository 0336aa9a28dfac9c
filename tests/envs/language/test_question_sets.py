"""MMLU-Pro, GPQA and MATH-500 on a few written rows in the published formats: golds, readings, prompts."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from envs.language.gpqa.benchmark import grade as grade_gpqa
from envs.language.math_500.benchmark import grade as grade_math
from envs.language.math_500.benchmark import last_boxed, normal_form
from envs.language.mmlu_pro.benchmark import grade as grade_pro
from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.trajectory import Outcome, Task
from tests.envs.questions import Says, play, tasks_of


def pro_row(number: int, **more: Any) -> dict[str, Any]:
    return {
        "question_id": number,
        "question": f"What is {number} + 1?",
        "options": [str(number + shift) for shift in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)],
        "answer": "B",
        "answer_index": 1,
        "cot_content": f"A: Let's think step by step. {number} + 1 is {number + 1}. The answer is (B).",
        "category": "math",
        "src": "written",
        **more,
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for folder in ("mmlu_pro", "gpqa", "math_500"):
        (tmp_path / folder).mkdir()
    splits = {"test": [pro_row(1), pro_row(2, options=["2", "3", "4"])], "validation": [pro_row(7), pro_row(8)]}
    for split, rows in splits.items():
        path = tmp_path / "mmlu_pro" / f"{split}-00000-of-00001.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    names = ["Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"]
    with (tmp_path / "gpqa" / "gpqa_diamond.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*names, "Record ID", "High-level domain"])
        writer.writeheader()
        for number in range(6):
            cells = ["Which of these\nis right?", " right", "wrong", "None", "nan"]
            row = {**dict(zip(names, cells, strict=True)), "Record ID": f"rec{number}", "High-level domain": "Physics"}
            writer.writerow(row)
    answers = [r"\frac{1}{2}", r"\left( 3, \frac{\pi}{2} \right)", "1,234", r"\text{even}", "x^2-1"]
    rows = [
        {"problem": f"P{n}", "solution": "", "answer": a, "subject": "Algebra", "level": n + 1, "unique_id": f"t/{n}"}
        for n, a in enumerate(answers)
    ]
    (tmp_path / "math_500" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.mark.parametrize("name", ["mmlu_pro", "gpqa/diamond", "math_500"])
def test_golds_score_one_and_empty_replies_nothing(name: str, data: Path, tmp_path: Path) -> None:
    tasks = tasks_of(name, data)
    assert len(tasks) in (2, 5, 6)
    for policy, end in ((ExpertPolicy(), Outcome.SOLVED), (Says({task.id: "" for task in tasks}), Outcome.FAILED)):
        (tmp_path / end).mkdir()
        assert {episode.outcome for episode in play(tasks, policy, tmp_path / end)} == {end}


def test_worked_examples_of_mmlu_pro_are_of_the_category_and_end_as_the_answer_shall(data: Path) -> None:
    first, second = tasks_of("mmlu_pro", data, shots=1)
    assert first.options["shots"].count("Question:") == 1
    assert "Let's think step by step. 7 + 1 is 8. The answer is (B).\n\n" in first.options["shots"]
    assert first.options["prompt"].endswith("J. 10")
    assert second.options["reference"] == {"answer": "B", "options": 3}


def test_options_of_gpqa_have_an_order_of_their_own_that_stays(data: Path) -> None:
    tasks, again = tasks_of("gpqa/diamond", data), tasks_of("gpqa/diamond", data)
    assert [task.options for task in tasks] == [task.options for task in again]
    assert len({task.options["reference"] for task in tasks}) > 1
    for task in tasks:
        assert f"({task.options['reference']}) right\n" in task.options["prompt"]
        assert ") None\n" in task.options["prompt"], "the text None is an option"
    assert [t.options for t in tasks_of("gpqa/diamond", data, seed_of_order=1)] != [t.options for t in tasks]


def readings(graded: Any) -> tuple[float, float, float]:
    return graded.score, graded.scores["strict"], graded.scores["flexible"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("So it is 2. The answer is (B).", (1, 1, 1)),
        ("**Answer: B**", (1, 0, 1)),
        ("(A) is incorrect. (B) is correct.", (1, 0, 1)),
        ("The answer is not (B). The answer is (C).", (0, 0, 0)),
        ("The answer is (J).", (0, 0, 0)),
        ("Nobody knows.", (0, 0, 0)),
    ],
)
def test_letters_are_read_strictly_and_as_a_person_reads_them(reply: str, expected: tuple[int, int, int]) -> None:
    assert readings(grade_pro(reply, {"reference": {"answer": "B", "options": 10}})) == expected
    assert readings(grade_gpqa(reply, {"reference": "B"})) == expected


@pytest.mark.parametrize(
    ("reply", "reference", "expected"),
    [
        (r"So $x = \boxed{\frac{1}{2}}$.", r"\frac{1}{2}", (1, 1, 1)),
        (r"\boxed{\dfrac12}", r"\frac{1}{2}", (1, 1, 1)),
        (r"\boxed{0.5}", r"\frac{1}{2}", (1, 1, 1)),
        (r"\boxed{0.25}", r"\frac{1}{4}", (1, 0, 1)),
        (r"\boxed{1234}", "1,234", (1, 0, 1)),
        (r"\boxed{1{,}234}", "1,234", (1, 0, 1)),
        (r"\boxed{even}", r"\text{even}", (1, 0, 1)),
        (r"First \boxed{3}, no: \boxed{4}", "4", (1, 1, 1)),
        (r"First \boxed{4}, no: \boxed{3}", "4", (0, 0, 0)),
        (r"\boxed{(3, \frac{\pi}{2})}", r"\left( 3, \frac{\pi}{2} \right)", (1, 1, 1)),
        (r"\boxed{(0.5, 2.0)}", r"\left( \frac{1}{2}, 2 \right)", (1, 0, 1)),
        (r"\boxed{[0.5, 2]}", r"\left( \frac{1}{2}, 2 \right)", (0, 0, 0)),
        (r"The final answer is $\frac{1}{2}$.", r"\frac{1}{2}", (1, 0, 1)),
        (r"Perhaps \frac{1}{2}", r"\frac{1}{2}", (0, 0, 0)),
        (r"\boxed{\frac{1}{2}", r"\frac{1}{2}", (0, 0, 0)),
        (r"\boxed{90^\circ}", "90", (1, 1, 1)),
        (r"\boxed{-\frac{1}{2}}", r"\frac{1}{2}", (0, 0, 0)),
        (r"\boxed{1/0}", r"\frac{1}{2}", (0, 0, 0)),
        (r"\boxed{10\text{ cm}}", "10", (1, 1, 1)),
        ("**Answer: 5**", "5", (1, 0, 1)),
    ],
)
def test_answers_of_math_are_equal_as_published_and_as_numbers(
    reply: str, reference: str, expected: tuple[int, int, int]
) -> None:
    assert readings(grade_math(reply, {"reference": reference})) == expected


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (r"\tfrac1{72}", r"\frac{1}{72}"),
        (r"\sqrt2", r"\sqrt{2}"),
        ("x = 5", "5"),
        ("abc = 5", "abc=5"),
        (".5", r"\frac{1}{2}"),
        ("3/4", r"\frac{3}{4}"),
        ("03/4", "03/4"),
        (r"12\text{ cm}", "12"),
        (r"50\%", "50"),
    ],
)
def test_normal_forms_are_those_of_the_authors_of_math(text: str, normal: str) -> None:
    """Compared with lm-eval's copy of the authors' rules on 48,638 random texts as well."""
    assert normal_form(text) == normal


def test_the_last_box_has_balanced_braces() -> None:
    assert last_boxed(r"\boxed{a} and \boxed{\frac{1}{2}} end") == r"\frac{1}{2}"
    assert last_boxed("none") is None
    assert last_boxed(r"\boxed{1} \boxed{2") is None


def test_files_that_are_missing_are_named_with_the_command(tmp_path: Path) -> None:
    def message(name: str, **options: Any) -> Mapping[str, Any] | str:
        with pytest.raises(FileNotFoundError) as error:
            tasks_of(name, tmp_path, **options)
        return str(error.value)

    for name, command in (("mmlu_pro", "mmlu_pro"), ("gpqa/main", "gpqa/main --accept gpqa"), ("math_500", "math_500")):
        assert f"jobs/fetch_data.py {command}" in message(name)


def test_levels_of_math_can_be_chosen(data: Path) -> None:
    tasks: list[Task] = tasks_of("math_500", data, max_level=2)
    assert [task.cluster for task in tasks] == ["level 1", "level 2"]
