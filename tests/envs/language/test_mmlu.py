"""MMLU: rows as they are, prompts as the protocol has them, letters as they are meant."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from envs.language.mmlu.letters import letter_in, means
from envs.language.mmlu.subjects import FIELDS, SUBJECTS
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.rollout.ledger import read_episodes
from tests.envs.questions import Says, golds, play, tasks_of

DATA = Path(os.environ.get("LEMUR_DATA", "../shared/data"))
needs_data = pytest.mark.skipif(not (DATA / "bench/mmlu").is_dir(), reason="needs MMLU beneath LEMUR_DATA")


@needs_data
def test_answers_are_counted_as_published_and_none_is_a_word() -> None:
    tasks = tasks_of("mmlu", DATA, form="base")
    assert Counter(task.options["reference"] for task in tasks) == {"A": 1769, "B": 1855, "C": 1948, "D": 2086}
    assert sum(". None\n" in task.options["prompt"] for task in tasks) == 8
    released = tasks_of("mmlu", DATA, form="base", mode="lemur")
    assert sum(". nan\n" in task.options["prompt"] for task in released) == 8
    assert "about  abstract algebra." in released[0].options["shots"]
    assert "about abstract algebra." in tasks[0].options["shots"]


def test_an_option_none_is_read_as_the_mode_reads_it_from_every_kind_of_file(tmp_path: Path) -> None:
    options = ["None", "N/A", "Some", "nothing"]
    row = {"question": "How many?", "subject": "astronomy", "choices": options, "answer": 0}
    (tmp_path / "hub/mmlu/all").mkdir(parents=True)
    for name in ("test", "dev"):
        (tmp_path / "authors/mmlu" / name).mkdir(parents=True)
        cells = ",".join(["How many?", *options, "A"])
        (tmp_path / f"authors/mmlu/{name}/astronomy_{name}.csv").write_text(f"{cells}\n")
        file = tmp_path / f"hub/mmlu/all/{name}-00000-of-00001.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), file)
    shown = {"standard": "A. None\nB. N/A\n", "lemur": "A. nan\nB. nan\n"}
    for mode, said in shown.items():
        found = [tasks_of("mmlu", tmp_path / kind, form="base", mode=mode) for kind in ("authors", "hub")]
        asked = [[(task.id, task.options["shots"], task.options["prompt"]) for task in tasks] for tasks in found]
        assert asked[0] == asked[1]
        assert all(said in text for text in asked[0][0][1:])


@needs_data
def test_prompts_hold_five_examples_as_far_as_they_fit_and_share_them() -> None:
    tasks = tasks_of("mmlu", DATA, form="base")
    long = [task for task in tasks if task.category == "high_school_us_history"]
    assert tasks[0].options["shots"].count("Answer:") == 5
    assert max(len(task.options["shots"] + task.options["prompt"]) for task in long) <= 8192
    assert min(task.options["shots"].count("Answer:") for task in long) < 5
    assert len({id(task.options["shots"]) for task in tasks}) < 100
    assert tasks[0].options["choices"] == [" A", " B", " C", " D"]
    assert tasks[0].id == "mmlu/abstract_algebra/0"


@needs_data
def test_a_thousand_questions_take_a_megabyte_or_two(tmp_path: Path) -> None:
    tasks = tasks_of("mmlu", DATA, form="base")[::8]
    assert all(golds(tasks, tmp_path).values())
    size = (tmp_path / "episodes.jsonl").stat().st_size
    assert size / len(tasks) * 14_042 < 40e6
    assert all(
        e.trajectory.opening[0].content.endswith("\nAnswer:") for e in read_episodes(tmp_path / "episodes.jsonl")
    )


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        (" A", "A"),
        ("(B) because", "B"),
        ("**C**", "C"),
        ("The answer is (D).", "D"),
        ("A is wrong, so the answer is B", "B"),
        ("A common choice is (C).", "C"),
        ("A good conductor", None),
        ("A because it rains", "A"),
        ("B. The cell, not option A", "B"),
        ("The answer is B, not option A", "B"),
        ("The answer is a cell", None),
        ("The answer is a.", "A"),
        ("The correct option is option C: x", "C"),
        ("B\nThe answer A is wrong", "B"),
        ("Since x > 0, the correct answer is: C", "C"),
        ("I think D", "D"),
        ("Both B and C", None),
        ("A's value", None),
        ("none", None),
    ],
)
def test_the_letter_that_is_meant(reply: str, letter: str | None) -> None:
    assert letter_in(reply) == letter


def test_written_letters_are_other_recipes_than_before_and_weighed_ones_are_not() -> None:
    benchmark = find("mmlu")

    def version(**options: str) -> int | None:
        return benchmark.identity_of(benchmark.options(**options), EvaluationRequest(), "auto").get("version")

    assert (version(form="base"), version(form="base", mode="lemur")) == (None, 2)
    assert (version(), version(mode="lemur"), version(form="base", ask="generate")) == (5, 6, 5)


@needs_data
def test_subjects_and_fields_have_means_of_their_own(tmp_path: Path) -> None:
    tasks = [t for t in tasks_of("mmlu", DATA) if t.category in ("astronomy", "management")]
    said = {task.id: "A" if task.category == "astronomy" else "It is unknown" for task in tasks}
    found = means(play(tasks, Says(said), tmp_path))
    share = sum(t.options["reference"] == "A" for t in tasks if t.category == "astronomy") / 152
    assert found["mean_of_subjects"] == pytest.approx(share / 2)
    assert found["share, STEM"] == pytest.approx(share)
    assert found["share, other"] == 0
    assert found["share_of_subfield"] == {"physics": pytest.approx(share), "business": 0}


def test_fields_are_made_of_the_subfields_that_the_authors_put_there() -> None:
    assert len(SUBJECTS) == 57
    assert {field: sorted(of) for field, of in FIELDS.items()} == {
        "STEM": ["biology", "chemistry", "computer science", "engineering", "math", "physics"],
        "humanities": ["history", "law", "philosophy"],
        "other": ["business", "health", "other"],
        "social sciences": ["culture", "economics", "geography", "politics", "psychology"],
    }
    assert SUBJECTS["anatomy"] == ("other", "health"), "by the authors' own table, though some harnesses call it STEM"
