"""Which benchmarks one of the paper's tables is made of, by the column that each benchmark says it has.

A table is its columns (``report/paper.py``); a benchmark that anybody adds, and that names one of them, is in it. Knows
no benchmark by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.benchmarks.discovery import offers
from lemur_ray.benchmarks.plugin_calls import call_about
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription
from lemur_ray.config import did_you_mean
from lemur_ray.report.paper import COLUMNS
from lemur_ray.report.paper_groups import CODE, REASONING

FEEDBACK = "table6"
"""Not columns of its own: those of its groups, without and with a teacher."""


@dataclass(frozen=True)
class Part:
    """One benchmark. ``taught``: with a teacher's feedback. ``benchmark``: empty where none has the column."""

    column: str
    benchmark: str = ""
    taught: bool = False

    @property
    def folder(self) -> str:
        """Beneath the suite's."""
        return self.benchmark.replace("/", "-").replace(":", "-") + ("-taught" if self.taught else "")

    @property
    def shown(self) -> str:
        return f"{self.benchmark}, with a teacher" if self.taught else self.benchmark


def suite_names() -> list[str]:
    """``table3`` and so on, and ``paper`` for all of them."""
    tables = dict.fromkeys(_called(column.table) for column in COLUMNS.values())
    return [*sorted({*tables, FEEDBACK}), "paper"]


def parts_of(suite: str) -> list[Part]:
    """In the order of the table's columns. Raises ValueError for a table that is not there."""
    known = suite_names()
    if suite not in known:
        raise ValueError(f"--suite {suite}: unknown{did_you_mean(suite, known)}; there are {', '.join(known)}")
    if suite == "paper":
        every = [part for one in known if one != "paper" for part in parts_of(one)]
        return list(dict.fromkeys(every))
    having = by_column()
    if suite == FEEDBACK:
        columns = [*REASONING, *CODE]
        return [Part(column, name, taught) for taught in (False, True) for column in columns for name in having[column]]
    columns = [column.column for column in COLUMNS.values() if _called(column.table) == suite]
    return [Part(column, name) for column in columns for name in having[column] or [""]]


def by_column() -> dict[str, list[str]]:
    """Column of the paper -> the benchmarks that are played as the paper's was; none for some columns.

    Also those that cannot be played by their name (two packages have it): whoever plays the table is told so.
    """
    found: dict[str, list[str]] = {column: [] for column in COLUMNS}
    for offer in offers():
        about = call_about(offer.name, offer.benchmark, EvaluationRun("")) if offer.benchmark else RunDescription()
        if about.column in found and not about.other_protocol and offer.name not in found[about.column]:
            found[about.column].append(offer.name)
    return found


def options_of_part(part: Part, benchmark: Benchmark[Any]) -> dict[str, Any]:
    """The options under which the paper's column was played. Raises ValueError where nobody can teach."""
    if part.taught and not benchmark.with_teacher:
        raise ValueError(f"{part.benchmark} knows no teacher, so it has no part in {FEEDBACK}")
    return {**benchmark.as_in_paper, **(benchmark.with_teacher if part.taught else {})}


def left_out(parts: Sequence[Part], without: str) -> tuple[list[Part], list[Part]]:
    """(parts that are played, parts that are not): those without a benchmark, and those that ``without`` names.

    Raises ValueError for a name that is none of them, and where nothing is left.
    """
    unwanted = {name.strip() for name in without.split(",") if name.strip()}
    there = {part.benchmark for part in parts if part.benchmark}
    if foreign := sorted(unwanted - there):
        raise ValueError(f"--without {foreign[0]}: not in this suite{did_you_mean(foreign[0], sorted(there))}")
    played = [part for part in parts if part.benchmark and part.benchmark not in unwanted]
    if not played:
        raise ValueError(f"--without {without}: nothing is left to be played")
    return played, [part for part in parts if part not in played]


def _called(table: str) -> str:
    return table.lower().replace(" ", "")
