"""Runs as rows of the paper's tables, by model and protocol, with and without a teacher.

A row names the protocol of its runs (protocol.py); two runs share a cell only as parts of a column. Draws nothing."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.benchmarks.run_notes import RunDescription
from lemur_ray.report.ledgers.stored_episodes import TRACEBACK
from lemur_ray.report.protocol import differences, incomplete_tasks

REASONING = ("M-GSM8K", "M-MATH", "M-TheoremQA", "M-HotpotQA", "M-MMLU")
CODE = ("M-HumanEval", "M-MBPP")
DECISION = ("ALFWorld",)
GROUPS: Mapping[str, tuple[str, ...]] = {
    "reasoning": REASONING,
    "code": CODE,
    "micro": REASONING + CODE,
    "all": REASONING + CODE + DECISION,
}


def saw_traceback(episode: Episode) -> bool:
    """Whether the model was shown a Python traceback."""
    steps = episode.trajectory.steps
    # The model read every observation but the last, and that too if the context overflowed after it.
    observed = steps if episode.outcome is Outcome.CONTEXT_OVERFLOW else steps[:-1]
    return any(TRACEBACK in step.observation for step in observed)


def had_invalid_action(episode: Episode) -> bool:
    """Whether any reply had no valid action."""
    return any(step.action is None for step in episode.trajectory.steps)


Runs = dict[str, Sequence[Episode]]
"""Column of the paper -> the episodes of one run, or of the runs of its parts."""


@dataclass(frozen=True)
class PaperRun:
    """One run of a policy on one benchmark: its episodes, and the benchmark's description ``about`` it. ``shown``:
    display name of the policy; empty: ``policy``."""

    policy: str
    episodes: Sequence[Episode]
    about: RunDescription
    shown: str = ""


@dataclass
class Row:
    """One model under one protocol: its episodes by column, without (``plain``) and with (``taught``) a teacher's
    feedback. ``protocol``: departures from the paper's protocol, except those of a single column, which are its
    ``marks``. ``before``: runs that a second teacher's runs are compared with in Table 6. ``graded``, ``on_engine``:
    columns that ``grader`` and ``engine`` apply to; these, ``teacher`` and ``comparable`` are as in
    ``RunDescription``."""

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
    """Runs of further ways to play a column, by way."""
    marks: dict[tuple[bool, str], list[str]] = field(default_factory=dict)
    """(with a teacher, departure) -> columns with this departure."""

    def add(self, run: PaperRun) -> None:
        """Store a run's episodes under its column, and update the row's marks, grader and SQL engine. They replace an
        earlier run of the column, unless the run is a part of it (``about.part``): parts are joined. Runs with a
        teacher, and other ways to play a column, are stored apart."""
        about = run.about
        runs = self.taught if about.teacher else self.ways.setdefault(about.way, {}) if about.way else self.plain
        runs[about.column] = [*runs.get(about.column, ()), *run.episodes] if about.part else run.episodes
        for mark in (f"{about.way}: {mark}" if about.way else mark for mark in about.alone):
            of = self.marks.setdefault((bool(about.teacher), mark), [])
            if about.column not in of and mark not in self.protocol.split(", "):
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
        """Episodes of a column without a teacher, by way to play it ("": the paper's); empty if it was not played."""
        every = {"": self.plain, **self.ways}
        return {way: runs[column] for way, runs in every.items() if column in runs}

    @property
    def name(self) -> str:
        return f"{self.model} ({self.protocol})" if self.protocol else self.model

    def played_as(self, columns: Sequence[str], taught: bool = False) -> str:
        """Text with the conditions that matter when the row's ``columns`` are compared: grader, SQL engine, columns
        with missing tasks, departures of single columns; empty without any. ``taught``: of the runs with a teacher."""
        runs = self.taught if taught else self.plain
        graded = self.grader and any(column in self.graded and column in runs for column in columns)
        grader = f"{self.grader} grader" if graded else ""
        comparable = ", not comparable with published numbers" if graded and not self.comparable else ""
        short = [incomplete_tasks(column, runs[column]) for column in columns if column in runs]
        ways = [(way, of) for way, of in self.ways.items() if not taught]
        short += [
            f"{text} ({way})" for way, of in ways for c in columns if c in of if (text := incomplete_tasks(c, of[c]))
        ]
        short = [", ".join(filter(None, short))]
        epochs = max((_epochs(runs[column]) for column in columns if column in runs), default=1)
        several = f"up to {epochs} episodes of a task, interval by task" if epochs > 1 else ""
        engine = f"queries on {self.engine}" if {*columns} & self.on_engine & runs.keys() else ""
        teacher = f"teacher: {self.teacher}" if taught else ""
        marks = [f"{', '.join(here)}: {mark}" for mark, here in self._marks(columns, taught)]
        return "; ".join(filter(None, (teacher, grader + comparable, engine, *short, several, *marks)))

    def _marks(self, columns: Sequence[str], taught: bool) -> list[tuple[str, list[str]]]:
        marks = [(mark, [c for c in columns if c in of]) for (so, mark), of in self.marks.items() if so == taught]
        return [(mark, here) for mark, here in marks if here]


def rows_of(runs: Sequence[PaperRun]) -> list[Row]:
    """Runs as rows: one for each model and protocol, and a further one if a cell would have two runs. A run's teacher
    comes from its settings or the name of its recording, never from texts. Runs of tasks that the paper does not have
    are in no row. A column with a single protocol is in the rows of every mode of its model."""
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
"""Model, mode and other departures of a row."""


def _key(run: PaperRun, words: str) -> Key:
    recorded = run.about.recorded
    return f"{recorded.model}, recorded" if recorded else run.shown or run.policy, run.about.mode or "", words


def _row(key: Key) -> Row:
    model, *protocol = key
    return Row(model, ", ".join(filter(None, protocol)))


def _protocols(runs: Sequence[PaperRun]) -> list[str]:
    """Words for each run's protocol besides its mode, distinct among runs of one model, mode, benchmark and teacher."""
    words = [_departures(run.about, run.about.alone) for run in runs]
    cells = [
        (*_key(run, text), run.about.column, run.about.part, run.about.way, run.about.teacher)
        for run, text in zip(runs, words, strict=True)
    ]
    for shared in [cell for cell, count in Counter(cells).items() if count > 1]:
        places = [i for i, cell in enumerate(cells) if cell == shared]
        common = set.intersection(*(set(runs[i].about.alone) for i in places))
        whole = [_departures(runs[i].about, common) for i in places]
        if len(set(whole)) == len(whole):
            for place, text in zip(places, whole, strict=True):
                words[place] = text
            continue
        apart = [", ".join(more) for more in differences([runs[i].about for i in places])]
        recipes = [runs[i].episodes[0].key.recipe[:6] for i in places]
        for number, (place, more, recipe) in enumerate(zip(places, apart, recipes, strict=True), 1):
            extra = [more] if apart.count(more) == 1 and more else [more, f"settings {recipe}"]
            if apart.count(more) > 1 and recipes.count(recipe) > 1:
                extra.append(f"run {number}")
            words[place] = ", ".join(filter(None, [words[place], *extra]))
    return words


def _departures(about: RunDescription, without: Collection[str]) -> str:
    return ", ".join(one for one in about.departures if one != about.mode and one not in without)


def _epochs(episodes: Sequence[Episode]) -> int:
    return max(Counter(e.key.task for e in episodes).values(), default=1)


def paired_runs(
    runs: Sequence[PaperRun], variants: tuple[str, str]
) -> list[tuple[str, tuple[PaperRun | None, PaperRun | None]]]:
    """Rows (name, (run of the first variant, run of the second)) of each model; two runs share a row if nothing else
    differs, else one is None. If a model has several rows, their names have the settings that differ."""
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
        apart = differences(known) if len(pairs) > 1 else [[]]
        rows += [
            (f"{model} ({'; '.join(words)})" if words else model, pair)
            for words, pair in zip(apart, pairs, strict=True)
        ]
    return rows
