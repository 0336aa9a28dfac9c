"""Question templates about the sample database with gold (reference) queries, in Spider's four levels of hardness.

A template is used once for each result of its ``values`` query, so questions fit the machine's data; a question with an
empty gold result is left out. The wording breaks ties, so that every question has one answer."""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Hardness = Literal["easy", "medium", "hard", "extra"]
LEVELS: tuple[Hardness, ...] = ("easy", "medium", "hard", "extra")
FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Template:
    """Template of questions: each of the first ``num_values`` results of the query ``values`` replaces ``{value}`` in
    question and gold (reference query)."""

    name: str
    hardness: Hardness
    question: str
    gold: str
    values: str = ""
    """SQL query of one column that returns the values. Empty: the template is used once, unchanged."""
    num_values: int = 2


@dataclass(frozen=True)
class Question:
    """A question with its gold (reference) query. ``id``, from template and value, is stable on one machine."""

    id: str
    hardness: Hardness
    question: str
    gold: str


@cache
def templates() -> tuple[Template, ...]:
    """The templates of ``sample_questions.toml``, in its order."""
    levels = tomllib.loads(FILE.read_text(encoding="utf-8"))
    queries = levels.pop("queries")
    return tuple(
        Template(name, level, **{**fields, "values": queries.get(fields.get("values"), "")})
        for level in LEVELS
        for name, fields in levels[level].items()
    )


def ask_all(rows_of: Callable[[str], list[tuple[object, ...]]]) -> list[Question]:
    """Every question whose gold query returns a value, alternating between levels of hardness. ``rows_of`` runs a query
    on the sample database and returns its rows."""
    by_level: dict[Hardness, list[Question]] = {level: [] for level in LEVELS}
    for template in templates():
        values = [str(row[0]) for row in rows_of(template.values) if row[0]] if template.values else [""]
        for value in values[: template.num_values]:
            gold = template.gold.replace("{value}", value.replace("'", "''"))
            if any(value is not None for row in rows_of(gold) for value in row):
                slug = re.sub(r"[^a-z0-9.+]+", "-", value.lower()).strip("-")
                name = f"{template.name}-{slug}".rstrip("-")
                question = template.question.replace("{value}", value)
                by_level[template.hardness].append(Question(name, template.hardness, question, gold))
    depth = max(len(questions) for questions in by_level.values())
    return [questions[i] for i in range(depth) for questions in by_level.values() if i < len(questions)]
