"""Runs as rows of the paper's tables: which model, under which protocol, with and without a teacher.

A row of ours says under which protocol it was played (protocol.py); two runs never share a cell. Draws nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.run_notes import RunDescription
from lemur_ray.report.protocol import differences, incomplete_tasks

Runs = dict[str, Sequence[Episode]]
"""Column of the paper -> the episodes of one run."""


@dataclass(frozen=True)
class PaperRun:
    """One run: who played, its episodes, all of one benchmark, and what that says of it.

    ``shown``: how the policy is called on the page, the policy itself where it is empty.
    """

    policy: str
    episodes: Sequence[Episode]
    about: RunDescription
    shown: str = ""


@dataclass
class Row:
    """One model under one protocol: its episodes by column, with and without a teacher's feedback.

    ``protocol``: departures from the paper's, but for those of one column alone, which are its ``marks``. ``before``:
    what a second teacher's runs are compared with in Table 6.
    """

    model: str
    protocol: str
    teacher: str = ""
    grader: str = ""
    comparable: bool = True
    engine: str = ""
    plain: Runs = field(default_factory=dict)
    taught: Runs = field(default_factory=dict)
    before: Runs = field(default_factory=dict)
    graded: set[str] = field(default_factory=set)
    on_engine: set[str] = field(default_factory=set)
    ways: dict[str, Runs] = field(default_factory=dict)
    """Further ways in which columns were played."""
    marks: dict[tuple[bool, str], list[str]] = field(default_factory=dict)
    """Whether with a teacher, and words -> the columns that they are of."""

    def add(self, run: PaperRun) -> None:
        """Put a run into its column."""
        about = run.about
        runs = self.taught if about.teacher else self.ways.setdefault(about.way, {}) if about.way else self.plain
        runs[about.column] = [*runs.get(about.column, ()), *run.episodes] if about.part else run.episodes
        for said in (f"{about.way}: {said}" if about.way else said for said in about.alone):
            of = self.marks.setdefault((bool(about.teacher), said), [])
            if about.column not in of and said not in self.protocol.split(", "):
                of.append(about.column)
        if about.grader:
            self.graded.add(about.column)
            self.grader, self.comparable = (
                (about.grader, about.comparable) if not self.grader else (self.grader, self.comparable)
            )
        if about.engine:
            self.on_engine.add(about.column)
            self.engine = self.engine or about.engine

    def of_column(self, column: str) -> dict[str, Sequence[Episode]]:
        """Without a teacher: by way of playing it, the column's own first (empty)."""
        every = {"": self.plain, **self.ways}
        return {way: runs[column] for way, runs in every.items() if column in runs}

    @property
    def name(self) -> str:
        return f"{self.model} ({self.protocol})" if self.protocol else self.model

    def played_as(self, columns: Sequence[str], taught: bool = False) -> str:
        """What a reader must know to compare the row: grader, SQL engine, of which columns it has not all tasks, and
        in what else these depart each by itself."""
        runs = self.taught if taught else self.plain
        graded = self.grader and any(column in self.graded and column in runs for column in columns)
        grader = f"{self.grader} grader" if graded else ""
        comparable = ", not comparable with published numbers" if graded and not self.comparable else ""
        short = [incomplete_tasks(column, runs[column]) for column in columns if column in runs]
        ways = [(way, of) for way, of in self.ways.items() if not taught]
        short += [
            f"{said} ({way})" for way, of in ways for c in columns if c in of if (said := incomplete_tasks(c, of[c]))
        ]
        short = [", ".join(filter(None, short))]
        epochs = max((_epochs(runs[column]) for column in columns if column in runs), default=1)
        several = f"up to {epochs} episodes of a task, interval by task" if epochs > 1 else ""
        engine = f"queries on {self.engine}" if {*columns} & self.on_engine & runs.keys() else ""
        teacher = f"teacher: {self.teacher}" if taught else ""
        marks = [f"{', '.join(here)}: {said}" for said, here in self._marks(columns, taught)]
        return "; ".join(filter(None, (teacher, grader + comparable, engine, *short, several, *marks)))

    def _marks(self, columns: Sequence[str], taught: bool) -> list[tuple[str, list[str]]]:
        found = [(said, [c for c in columns if c in of]) for (so, said), of in self.marks.items() if so == taught]
        return [(said, here) for said, here in found if here]


def rows_of(runs: Sequence[PaperRun]) -> list[Row]:
    """Runs as rows: one for each model and protocol, and one for each run where a cell would hold two.

    Whether a run had a teacher is in its settings, or in the name of its recording; what a model or a teacher wrote
    decides nothing. Runs of tasks that the paper does not have are in no row. A column that has one protocol only is in
    the rows of every mode in which its model was played.
    """
    runs = [run for run in runs if run.about.column and not run.about.other_protocol]
    keyed = sorted(zip(map(_key, runs, _protocols(runs)), runs, strict=True), key=lambda one: one[1].about.mode is None)
    rows: dict[Key, Row] = {}
    for key, run in keyed:
        if not run.about.teacher:
            of_any = [row for (model, _, words), row in rows.items() if (model, words) == (key[0], key[2])]
            if run.about.mode is not None or not of_any:
                of_any = [rows.setdefault(key, _row(key))]
            for row in of_any:
                row.add(run)
    taught: dict[tuple[Key, str], Row] = {}
    for key, run in keyed:
        teacher = run.about.teacher
        if not teacher:
            continue
        row = rows.setdefault(key, _row(key))
        if row.teacher not in ("", teacher):
            plain = row.plain
            row = taught.setdefault((key, teacher), replace(_row(key), before=plain))
        row.teacher = teacher
        row.add(run)
    return [*rows.values(), *taught.values()]


Key = tuple[str, str, str]
"""Of a row: its model, the mode, and in what else it departs."""


def _key(run: PaperRun, words: str) -> Key:
    recorded = run.about.recorded
    return f"{recorded.model}, recorded" if recorded else run.shown or run.policy, run.about.mode or "", words


def _row(key: Key) -> Row:
    model, *protocol = key
    return Row(model, ", ".join(filter(None, protocol)))


def _protocols(runs: Sequence[PaperRun]) -> list[str]:
    """Words for each run's protocol beside its mode, so that no two runs of a model, a mode, a benchmark and a teacher
    have the same."""
    words = [_departures(run.about, run.about.alone) for run in runs]
    cells = [
        (*_key(run, said), run.about.column, run.about.part, run.about.way, run.about.teacher)
        for run, said in zip(runs, words, strict=True)
    ]
    for shared in [cell for cell, count in Counter(cells).items() if count > 1]:
        places = [i for i, cell in enumerate(cells) if cell == shared]
        whole = [_departures(runs[i].about) for i in places]
        if len(set(whole)) == len(whole):
            for place, said_of_all in zip(places, whole, strict=True):
                words[place] = said_of_all
            continue
        apart = [", ".join(more) for more in differences([runs[i].about for i in places])]
        recipes = [runs[i].episodes[0].key.recipe[:6] for i in places]
        for number, (place, more, recipe) in enumerate(zip(places, apart, recipes, strict=True), 1):
            said = [more] if apart.count(more) == 1 and more else [more, f"settings {recipe}"]
            if apart.count(more) > 1 and recipes.count(recipe) > 1:
                said.append(f"run {number}")
            words[place] = ", ".join(filter(None, [words[place], *said]))
    return words


def _departures(about: RunDescription, without: Sequence[str] = ()) -> str:
    return ", ".join(said for said in about.departures if said != about.mode and said not in without)


def _epochs(episodes: Sequence[Episode]) -> int:
    return max(Counter(e.key.task for e in episodes).values(), default=1)


def paired_runs(
    runs: Sequence[PaperRun], variants: tuple[str, str]
) -> list[tuple[str, tuple[PaperRun | None, PaperRun | None]]]:
    """The runs of each model in two variants, side by side where nothing else parts them, else each in a row alone.

    Where a model has several rows, each says what parts it from the others.
    """
    rows: list[tuple[str, tuple[PaperRun | None, PaperRun | None]]] = []
    for model in dict.fromkeys(run.shown or run.policy for run in runs):
        mine = [run for run in runs if (run.shown or run.policy) == model]
        first, left = ([run for run in mine if run.about.variant == variant] for variant in variants)
        pairs: list[tuple[PaperRun | None, PaperRun | None]] = []
        for run in first:
            other = next((one for one in left if len(differences([run.about, one.about])[0]) <= 1), None)
            left = [one for one in left if one is not other]
            pairs.append((run, other))
        pairs += [(None, run) for run in left]
        known = [next(run.about for run in pair if run) for pair in pairs]
        said = differences(known) if len(pairs) > 1 else [[]]
        rows += [
            (f"{model} ({'; '.join(words)})" if words else model, pair) for words, pair in zip(said, pairs, strict=True)
        ]
    return rows
