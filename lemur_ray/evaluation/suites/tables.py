"""The benchmarks of each table of the Lemur paper, by the table's column that each benchmark declares.

A table is a list of columns (``report/paper.toml``); an installed benchmark that declares one is part of it, too."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.benchmarks.discovery import offers
from lemur_ray.benchmarks.plugin_calls import call_about
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription
from lemur_ray.config import did_you_mean
from lemur_ray.report.paper import COLUMNS
from lemur_ray.report.paper_rows import CODE, REASONING

FEEDBACK = "table6"
"""Name of the suite of Table 6, which has the columns of two groups, each without and with a teacher."""


@dataclass(frozen=True)
class Part:
    """One column of the paper's tables and the benchmark that plays it, as a member of a suite."""

    column: str
    benchmark: str = ""
    """Name of the benchmark; empty if no installed benchmark declares this column."""
    taught: bool = False
    """Whether a teacher model comments on the policy's answers, as in half of Table 6."""

    @property
    def folder(self) -> str:
        """Name of the benchmark's subfolder in the suite's folder."""
        return self.benchmark.replace("/", "-").replace(":", "-") + ("-taught" if self.taught else "")

    @property
    def shown(self) -> str:
        return f"{self.benchmark}, with a teacher" if self.taught else self.benchmark


def suite_names() -> list[str]:
    """Names of all suites: ``table3`` and so on, and ``paper`` for all tables."""
    tables = dict.fromkeys(_called(column.table) for column in COLUMNS.values())
    return [*sorted({*tables, FEEDBACK}), "paper"]


def parts_of(suite: str) -> list[Part]:
    """Benchmarks of a suite ("table5", "paper") in the order of the columns. Raises ValueError for an unknown one."""
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
    """Name of a column of the paper -> names of the benchmarks that declare it, possibly none. A name that two packages
    declare is included; playing the table then reports the conflict."""
    names: dict[str, list[str]] = {column: [] for column in COLUMNS}
    for offer in offers():
        about = call_about(offer.name, offer.benchmark, EvaluationRun("")) if offer.benchmark else RunDescription()
        if about.column in names and not about.other_protocol and offer.name not in names[about.column]:
            names[about.column].append(offer.name)
    return names


def options_of_part(part: Part, benchmark: Benchmark[Any]) -> dict[str, Any]:
    """Value by name of the options that play the protocol of the part's column. Raises ValueError if the column has a
    teacher and the benchmark none."""
    if part.taught and not benchmark.details.teacher_settings:
        raise ValueError(f"{part.benchmark} knows no teacher, so it has no part in {FEEDBACK}")
    return {**benchmark.details.published_settings, **(benchmark.details.teacher_settings if part.taught else {})}


def left_out(parts: Sequence[Part], without: str) -> tuple[list[Part], list[Part]]:
    """Returns (parts to play, parts left out): left out are parts without a benchmark and those that ``without`` names
    (separated by commas). Raises ValueError for an unknown name, or if no part is left to play."""
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
