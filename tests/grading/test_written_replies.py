"""Hand-written replies of every form, each with the reading that a person gives it (``written_replies``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from envs.language.bbh.answers import means
from envs.language.mmlu.letters import LETTERS, letter_asked
from envs.programs.humaneval.completion import program_of
from envs.programs.spider.execution import query_alone, query_in
from lemur_ray.grading.written_answers import final_number, same_number
from lemur_ray.grading.written_letters import chosen_letter

FOLDER = Path(__file__).parent / "written_replies"
PROMPT = 'def add(x, y):\n    """Add two numbers."""\n'


def table(name: str) -> dict[Any, Any]:
    rows: dict[Any, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return rows


def test_the_table_has_three_hundred_replies_and_more() -> None:
    number = 0
    for name in ("letters", "numbers", "bbh", "sql", "python", "multipl_e"):
        for rows in table(name).values():
            number += sum(map(len, rows.values())) if isinstance(rows, dict) else len(rows)
    assert number >= 350


@pytest.mark.parametrize("right", table("letters"))
def test_a_letter_is_read_as_a_person_reads_it(right: str | None) -> None:
    assert {reply: chosen_letter(reply, LETTERS) for reply in table("letters")[right]} == dict.fromkeys(
        table("letters")[right], right
    )


def test_the_strict_letter_is_the_form_of_the_worked_examples() -> None:
    read = {reply: letter_asked(reply) for reply in table("letters")["B"]}
    assert {reply for reply, letter in read.items() if letter} == {"B", "B\n"}
    assert letter_asked("(A) is incorrect. (B) is incorrect. (C) is correct.") is None


@pytest.mark.parametrize("right", table("numbers"))
def test_a_number_is_the_one_that_the_reply_concludes_with(right: str | None) -> None:
    read = {reply: final_number(reply) for reply in table("numbers")[right]}
    wrong = {
        reply: number for reply, number in read.items() if not (number is right or same_number(number, str(right)))
    }
    assert wrong == {}


@pytest.mark.parametrize("target", table("bbh"))
def test_an_answer_is_read_by_the_form_of_its_reference(target: str) -> None:
    rows = table("bbh")[target]
    assert [reply for reply in rows["right"] if not means(reply, target)] == []
    assert [reply for reply in rows["wrong"] if means(reply, target)] == []


@pytest.mark.parametrize("right", table("sql"))
def test_a_query_is_found_in_prose_and_fences(right: str | None) -> None:
    read = {reply: query_in(reply) for reply in table("sql")[right]}
    assert {reply: query for reply, query in read.items() if not same_query(query, right)} == {}


def same_query(query: str | None, right: str | None) -> bool:
    """Whether two queries are equal without blanks."""
    return query == right or bool(query and right and "".join(query.split()).rstrip(";") == "".join(right.split()))


def test_the_strict_query_is_the_whole_reply() -> None:
    assert query_alone("SELECT name FROM t;") == "SELECT name FROM t;"
    assert query_alone("Here is the query:\n\nSELECT name FROM t;") is None
    assert query_alone("```sql\nSELECT name FROM t\n```") is None


def test_a_program_is_found_in_prose_and_fences() -> None:
    rows = table("python")
    assert [reply for reply in rows["right"] if not adds(program_of(reply, PROMPT, "add"))] == []
    assert [reply for reply in rows["wrong"] if adds(program_of(reply, PROMPT, "add"))] == []


def adds(program: str) -> bool:
    """Whether a program, one of this project's own, defines ``add``. It is run here, in an empty namespace."""
    scope: dict[str, Any] = {"__name__": "solution"}
    try:
        exec(program, scope)
        return scope["add"](2, 3) == 5
    except Exception:
        return False
