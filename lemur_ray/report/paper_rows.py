"""Runs as rows of the paper's tables: which model, under which protocol, with and without a teacher.

A row of ours says under which protocol it was played (protocol.py); two runs never share a cell. Draws nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from lemur_ray.agents.trajectory import Episode
from lemur_ray.report.paper import COLUMNS
from lemur_ray.report.protocol import (
    Settings,
    as_played,
    departures,
    differences,
    grader_of,
    is_spider,
    tasks_short,
    teacher_of,
)
from lemur_ray.report.recording_names import recorded_name

Runs = dict[str, Sequence[Episode]]
"""Benchmark -> the episodes of one run."""


@dataclass(frozen=True)
class PlayedRun:
    """One run: who played, under which settings (empty: not recorded), its episodes, all of one benchmark.

    ``shown``: how the policy is called on the page, the policy itself where it is empty.
    """

    policy: str
    episodes: Sequence[Episode]
    settings: Settings = field(default_factory=dict)
    shown: str = ""

    @property
    def benchmark(self) -> str:
        return self.episodes[0].key.benchmark

    @property
    def teacher(self) -> str:
        return teacher_of(self.policy, self.settings)

    @property
    def in_paper(self) -> bool:
        """Whether it is of tasks that the paper has: those of the sample database are not."""
        if self.benchmark == "intercode/sql":
            return is_spider(self.episodes)
        return self.benchmark in COLUMNS


@dataclass
class Row:
    """One model under one protocol: its episodes by benchmark, with and without a teacher's feedback.

    ``protocol``: departures from the paper's. ``before``: what a second teacher's runs are compared with in Table 6.
    """

    model: str
    protocol: str
    teacher: str = ""
    grader: str = ""
    engine: str = ""
    plain: Runs = field(default_factory=dict)
    taught: Runs = field(default_factory=dict)
    before: Runs = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.model} ({self.protocol})" if self.protocol else self.model

    def played_as(self, columns: Sequence[str], taught: bool = False) -> str:
        """What a reader must know to compare the row: grader, SQL engine, and of which columns it has not all tasks."""
        runs = self.taught if taught else self.plain
        graded = any(column.startswith("mint/") and column in runs for column in columns)
        grader = f"{self.grader or 'unknown'} grader" if graded else ""
        comparable = ", not comparable with published numbers" if graded and self.grader != "mint-2023" else ""
        short = [tasks_short(column, runs[column]) for column in columns if column in runs]
        short = [", ".join(filter(None, short))]
        epochs = max((_epochs(runs[column]) for column in columns if column in runs), default=1)
        several = f"up to {epochs} episodes of a task, interval by task" if epochs > 1 else ""
        engine = f"queries on {self.engine}" if self.engine and "intercode/sql" in {*columns} & runs.keys() else ""
        teacher = f"teacher: {self.teacher}" if taught else ""
        return "; ".join(filter(None, (teacher, grader + comparable, engine, *short, several)))


def rows_of(runs: Sequence[PlayedRun]) -> list[Row]:
    """Runs as rows: one for each model and protocol, and one for each run where a cell would hold two.

    Whether a run had a teacher is in its settings, or in the name of its recording; what a model or a teacher wrote
    decides nothing. Runs of tasks that the paper does not have are in no row.
    """
    runs = [run for run in runs if run.in_paper]
    protocols = _protocols(runs)
    rows: dict[tuple[str, str], Row] = {}
    for run, protocol in zip(runs, protocols, strict=True):
        if not run.teacher:
            row = rows.setdefault(_key(run, protocol), Row(_key(run, protocol)[0], protocol))
            row.plain[run.benchmark] = run.episodes
            row.grader = row.grader or grader_of(run.settings)
            row.engine = row.engine or str(run.settings.get("engine_kind", ""))
    taught: dict[tuple[str, str, str], Row] = {}
    for run, protocol in zip(runs, protocols, strict=True):
        if not run.teacher:
            continue
        key = _key(run, protocol)
        row = rows.setdefault(key, Row(key[0], protocol))
        if row.teacher not in ("", run.teacher):
            plain = row.plain
            row = taught.setdefault((*key, run.teacher), Row(key[0], protocol, before=plain))
        row.teacher = run.teacher
        row.grader = row.grader or grader_of(run.settings)
        row.taught[run.benchmark] = run.episodes
    return [*rows.values(), *taught.values()]


def _key(run: PlayedRun, protocol: str) -> tuple[str, str]:
    return model_name(run.policy) if recorded_name(run.policy) else run.shown or run.policy, protocol


def _protocols(runs: Sequence[PlayedRun]) -> list[str]:
    """Words for each run's protocol, so that no two runs of a model, a benchmark and a teacher have the same."""
    words = [", ".join(departures(run.policy, run.benchmark, run.settings)) for run in runs]
    cells = [(*_key(run, said), run.benchmark, run.teacher) for run, said in zip(runs, words, strict=True)]
    for shared in [cell for cell, count in Counter(cells).items() if count > 1]:
        places = [i for i, cell in enumerate(cells) if cell == shared]
        apart = [", ".join(more) for more in differences([as_played(runs[i].policy, runs[i].settings) for i in places])]
        recipes = [runs[i].episodes[0].key.recipe[:6] for i in places]
        for number, (place, more, recipe) in enumerate(zip(places, apart, recipes, strict=True), 1):
            said = [more] if apart.count(more) == 1 and more else [more, f"settings {recipe}"]
            if apart.count(more) > 1 and recipes.count(recipe) > 1:
                said.append(f"run {number}")
            words[place] = ", ".join(filter(None, [words[place], *said]))
    return words


def _epochs(episodes: Sequence[Episode]) -> int:
    return max(Counter(e.key.task for e in episodes).values(), default=1)


def model_name(policy: str) -> str:
    """``replay:gpt-3.5-turbo-0613/F=None`` is the recorded gpt-3.5-turbo; every other policy is its own name."""
    named = recorded_name(policy)
    return policy if named is None else f"{named.model}, recorded"
