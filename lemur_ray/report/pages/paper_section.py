"""The paper's Tables 3 to 7, 9 and 10 and Figures 3 and 4 with a row for each of our models.

Our cells are solved of scored episodes with an interval; the paper's are the printed numbers. A table appears only if
there are episodes for it, an average only if all its columns are present. Knows no other section."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lemur_ray.agents.trajectory import Episode
from lemur_ray.report.pages import figures
from lemur_ray.report.pages.markup import MANY, noted, numeric, percent_interval, rate_text, table, warning
from lemur_ray.report.pages.rendering import macro, render
from lemur_ray.report.paper import (
    COLUMNS,
    FIGURE_4,
    FIGURE_4_VARIANTS,
    MODELS,
    NOTES,
    TABLE_3_AVERAGE,
    TABLE_4_MICRO,
    TABLE_6,
    TABLE_9,
    TABLE_10,
    Published,
)
from lemur_ray.report.paper_rows import (
    CODE,
    DECISION,
    GROUPS,
    REASONING,
    PaperRun,
    Row,
    Runs,
    had_invalid_action,
    paired_runs,
    rows_of,
    saw_traceback,
)
from lemur_ray.report.statistics import Interval, mcnemar, mean_of_macros, stratified_mean
from lemur_ray.report.strata import Stratum, solved_or_not, strata_of, units_of
from lemur_ray.report.tables import Rate, compare, is_solved, rate_of

_TABLE_3 = [column.column for column in COLUMNS.values() if column.table == "Table 3"]
_TABLES: Mapping[str, tuple[str, Sequence[str]]] = {
    "Table 3": ("language and code", _TABLE_3),
    "Table 4": ("augmenting with tools", REASONING),
    "Table 5": ("self-debugging with the environment's feedback", [*CODE, "IC-Bash", "IC-SQL", "RoboCodeGen"]),
    "Table 7": ("partially observable environments", ["IC-CTF", "WebArena", *DECISION]),
}
"""Title and columns of the tables whose cells are success rates."""
_HARDNESS = ("easy", "medium", "hard", "extra")
_MINT_TURNS = 5
_FIGURE_4_NOTE = (
    "Printed are differences of 3, 5 and 3 of 812 tasks; one standard error of a rate of 5 % is 6 tasks, so none is "
    "significant by itself. Intervals of ours are clustered by template of task."
)


@dataclass(frozen=True)
class _Part:
    """One table or figure of the paper: title, tables and drawings in their order, note below them."""

    title: str
    content: Sequence[Markup]
    note: str = ""


def section(runs: Sequence[PaperRun]) -> Markup:
    """HTML of all tables and figures of the paper in which these runs have a cell; empty if there is none."""
    rows = rows_of(runs)
    feedback = _feedback(rows)
    parts = [_success(name, rows) for name in _TABLES]
    parts += [feedback, _errors(rows), _hardness(rows), _by_turn(rows), *_action_languages(runs), _graders(rows)]
    shown = [part for part in parts if part]
    return render("paper", parts=shown, notes=warning(NOTES if feedback else ())) if shown else Markup("")


def _success(name: str, rows: Sequence[Row]) -> _Part | None:
    title, columns = _TABLES[name]
    ours = [row for row in rows if any(row.of_column(column) for column in columns)]
    if not ours:
        return None
    average = {"Table 3": "average", "Table 4": "micro average"}.get(name)
    lines: list[list[object]] = []
    for row in ours:
        lines.append([_name_cell(row, columns), *(_cells_by_protocol(COLUMNS[c], row) for c in columns)])
        if average:
            pooled = name == "Table 4"
            lines[-1].append(_solved(_pooled(row.plain, REASONING)) if pooled else _average(row.plain, columns))
    for model in (model for model in MODELS if any(model in COLUMNS[c].values for c in columns)):
        lines.append([model, *(_printed(COLUMNS[c].values.get(model)) for c in columns)])
        if average:
            micro = _printed(TABLE_4_MICRO.get(model))
            lines[-1].append(micro if name == "Table 4" else _printed_average(model, columns))
    settings = {COLUMNS[c].setting for c in columns if any(row.of_column(c) for row in ours)}
    whole = [one for one in sorted(settings) if not any(one != other and one in other for other in settings)]
    notes = [COLUMNS[c].note for c in columns if COLUMNS[c].note and any(row.of_column(c) for row in ours)]
    content = table(["model", *columns, *filter(None, [average])], lines, frozenset(range(len(ours))), MANY)
    note = " ".join(text.rstrip(".") + "." for text in [*whole, *notes])
    return _Part(f"{name}: {title}", [content], note)


def _cells_by_protocol(column: Published, row: Row) -> Markup | None:
    """A column's own cell, and below it one for each further way of playing its tasks."""
    cells = {way: _of_column(column, episodes) for way, episodes in row.of_column(column.column).items()}
    lines = [(way, cell) for way, cell in cells.items() if cell is not None]
    return macro("parts", "ways")(lines) if lines else None


def _of_column(column: Published, episodes: Sequence[Episode] | None) -> Markup | None:
    """The share of all tasks that is solved, or the mean over kinds if the column is such a mean."""
    strata = strata_of(episodes or ())
    if not strata:
        return None
    if not column.mean_of:
        share = _solved(episodes)
        if share is None or not column.beside or len(strata) < 2:
            return share
        mean = math.fsum(math.fsum(values) / len(values) for values, _ in strata.values()) / len(strata)
        return noted(share, f"mean of {len(strata)} {column.beside} {100 * mean:.2f}")
    basis = f"mean of {len(strata)} {column.mean_of}" if len(strata) > 1 else next(iter(strata))
    return _estimate(*stratified_mean([*strata.values()]), basis)


def _average(runs: Runs, columns: Sequence[str]) -> Markup | None:
    """The mean of the values of all columns; None if one has no episode with a score."""
    groups: list[list[Stratum]] = []
    for column in columns:
        scored = [e for e in runs.get(column, ()) if e.outcome.scored]
        strata = [*strata_of(scored).values()]
        whole = (solved_or_not(scored), units_of(scored)[0])
        groups.append(strata if COLUMNS[column].mean_of else [whole] if scored else [])
    return _estimate(*mean_of_macros(groups), f"mean of {len(columns)}") if all(groups) else None


def _printed_average(model: str, columns: Sequence[str]) -> Markup | None:
    """The mean of the printed numbers, with a note if the printed average differs."""
    values = [COLUMNS[c].values[model] for c in columns if model in COLUMNS[c].values]
    mean, printed = math.fsum(values) / max(1, len(values)), TABLE_3_AVERAGE.get(model)
    if len(values) < len(columns) or printed is None:
        return None
    return noted(f"{mean:.2f}", f"printed {printed:.2f}" if abs(mean - printed) > 0.1 else "")


def _feedback(rows: Sequence[Row]) -> _Part | None:
    """Table 6: reasoning, code and both (ALFWorld is not in it), without and with a teacher."""
    header = ["model", "reasoning", "code", "both", "reasoning, taught", "code, taught", "both, taught", "gain"]
    groups = (REASONING, CODE, REASONING + CODE)
    lines: list[list[object]] = []
    for row in rows:
        sums = [_pooled(part, group) for part in (row.before or row.plain, row.taught) for group in groups]
        if any(sums[3:]):
            before, after = (_rate(pooled, is_solved).value if pooled else None for pooled in (sums[2], sums[5]))
            gain = None if before is None or after is None else 100 * (after - before)
            name = _name_cell(row, REASONING + CODE, taught=True)
            lines.append([name, *map(_solved, sums), None if gain is None else numeric(f"{gain:+.2f}")])
    printed = [
        [
            one.model,
            *map(_printed, (*one.without, *(one.with_feedback or [None] * 3))),
            None if one.gain is None else numeric(f"{one.gain:+.2f}"),
        ]
        for one in TABLE_6
    ]
    return _table_with_published("Table 6: with a teacher's feedback", header, lines, printed)


def _table_with_published(
    title: str,
    header: Sequence[str],
    ours: Sequence[Sequence[object]],
    printed: Sequence[Sequence[object]],
    note: str = "",
) -> _Part | None:
    """A table of our rows, emphasised, above the printed ones; None without a row of ours."""
    if not ours:
        return None
    return _Part(title, [table(header, [*ours, *printed], frozenset(range(len(ours))), MANY)], note)


def _errors(rows: Sequence[Row]) -> _Part | None:
    """Table 9: of all episodes of M-MATH, those that failed after a traceback, or had an invalid action."""
    failures = [_failed_with(sign) for sign in (saw_traceback, had_invalid_action)]
    lines = [
        [_name_cell(row, ["M-MATH"]), *(_solved(row.plain["M-MATH"], failed) for failed in failures)]
        for row in rows
        if row.plain.get("M-MATH")
    ]
    printed = [[model, *map(_printed, TABLE_9[model])] for model in MODELS if model in TABLE_9]
    header = ["model", "failed with a traceback", "failed with an invalid action"]
    return _table_with_published("Table 9: why M-MATH fails", header, lines, printed)


def _failed_with(sign: Callable[[Episode], bool]) -> Callable[[Episode], bool]:
    return lambda episode: not is_solved(episode) and sign(episode)


def _hardness(rows: Sequence[Row]) -> _Part | None:
    """Table 10: InterCode-SQL by hardness. Rows hold Spider's questions alone."""
    lines: list[list[object]] = []
    for row in rows:
        if episodes := row.plain.get("IC-SQL"):
            by = [[e for e in episodes if e.category == hardness] for hardness in _HARDNESS]
            lines.append([_name_cell(row, ["IC-SQL"]), *map(_solved, by), _solved(episodes)])
    n = (248, 446, 174, 166)
    printed = [
        [model, *(_printed(100 * hits / of) for hits, of in zip((*solved, sum(solved)), (*n, sum(n)), strict=True))]
        for model, solved in TABLE_10.items()
    ]
    return _table_with_published("Table 10: InterCode-SQL by hardness", ["model", *_HARDNESS, "all"], lines, printed)


def _by_turn(rows: Sequence[Row]) -> _Part | None:
    """Figure 3: share of MINT's tasks solved within so many turns, one drawing for each set of pooled subsets."""
    by_subsets: dict[tuple[str, ...], list[tuple[str, list[Episode]]]] = {}
    for row in rows:
        for runs, suffix in ((row.plain, ""), (row.taught, _taught_by(row))):
            subsets = tuple(subset for subset in GROUPS["all"] if subset in runs)
            if pooled := _pooled(runs, subsets):
                by_subsets.setdefault(subsets, []).append((row.name + suffix, pooled))
    points, content = range(1, _MINT_TURNS + 1), []
    for subsets, series in sorted(by_subsets.items(), key=lambda item: -len(item[0])):
        rates = {name: [_rate(pooled, _solved_within(k)) for k in points] for name, pooled in series}
        lines = {name: [(k, 100 * (rate.value or 0.0)) for k, rate in enumerate(by, 1)] for name, by in rates.items()}
        which = "all eight subsets" if len(subsets) == len(GROUPS["all"]) else ", ".join(subsets)
        header = [f"solved within, pooled over {which}", *(f"{k} turn{'s' * (k > 1)}" for k in points)]
        content.append(figures.curves(lines, x_label="turn", y_label="solved, %", window=1, digits=1))
        content.append(table(header, [[name, *map(_rate_cell, by)] for name, by in rates.items()], kind=MANY))
    note = "No published numbers are available for this figure."
    return _Part("Figure 3: MINT, solved within so many turns", content, note) if content else None


def _action_languages(runs: Sequence[PaperRun]) -> list[_Part | None]:
    """Figure 4: the same tasks with symbolic actions and with Python calls, paired."""
    parts = []
    for column, printed in FIGURE_4.items():
        pairs = paired_runs([run for run in runs if run.about.column == column], FIGURE_4_VARIANTS)
        lines = [_pair_line(model, *(run.episodes if run else None for run in pair)) for model, pair in pairs]
        both = [[model, _printed(a), _printed(b), f"{b - a:+.2f}", *[None] * 3] for model, (a, b) in printed.items()]
        apart = ["difference", "only with calls", "only with symbols", "McNemar's exact p"]
        title = f"Figure 4: {column} in both action languages"
        parts.append(_table_with_published(title, ["model", *FIGURE_4_VARIANTS, *apart], lines, both, _FIGURE_4_NOTE))
    return parts


def _pair_line(model: str, first: Sequence[Episode] | None, second: Sequence[Episode] | None) -> list[object]:
    paired = compare(first, second) if first and second else None
    cells = [model, _solved(first), _solved(second)]
    if paired is None:
        return [*cells, *[None] * 4]
    low, high = -100 * paired.interval.high, -100 * paired.interval.low
    difference = f"{-100 * paired.difference:+.2f} [{low:+.1f}, {high:+.1f}], {paired.n} tasks"
    return [*cells, difference, paired.only_b, paired.only_a, f"{mcnemar(paired.only_a, paired.only_b):.3f}"]


def _solved_within(turns: int) -> Callable[[Episode], bool]:
    return lambda episode: is_solved(episode) and len(episode.trajectory.steps) <= turns


def _graders(rows: Sequence[Row]) -> _Part | None:
    """Verdicts of several graders on the same episodes. A grader that did not end its episodes gives a lower bound."""
    every = [
        (f"{row.name}, {run[0].key.benchmark}{taught}", run)
        for row in rows
        for runs, taught in (*((of, "") for of in (row.plain, *row.ways.values())), (row.taught, _taught_by(row)))
        for _, run in sorted(runs.items())
    ]
    names = sorted({name for _, run in every for e in run for name in e.scores})
    lines: list[list[object]] = []
    for title, run in every:
        graded = [e for e in run if e.outcome.scored and e.scores]
        if not graded or len(names) < 2:
            continue
        solved = [_solved_by(name) for name in names]
        first, *others = ({(e.key.task, e.key.epoch) for e in graded if hit(e)} for hit in solved)
        disputed = sorted({task for task, _ in first.union(*others) - first.intersection(*others)})
        shown = ", ".join(disputed[:8]) + (", ..." if len(disputed) > 8 else "")
        rates = [numeric(rate_text(rate_of(graded, hit))) for hit in solved]
        lines.append([title, *rates, len(disputed), shown or None])
    header = ["model and benchmark", *names, "tasks with different verdicts", "which"]
    return _Part("Where the graders disagree", [table(header, lines, kind=MANY)]) if lines else None


def _taught_by(row: Row) -> str:
    return f", taught by {row.teacher}"


def _solved_by(grader: str) -> Callable[[Episode], bool]:
    return lambda episode: episode.scores.get(grader, 0.0) >= 1.0


def _pooled(runs: Runs, subsets: Sequence[str]) -> list[Episode] | None:
    """The episodes of several of MINT's subsets; None if one of them has no episode with a score."""
    parts = [runs.get(subset, ()) for subset in subsets]
    if not parts or not all(any(e.outcome.scored for e in part) for part in parts):
        return None
    return [e for part in parts for e in part]


def _rate(episodes: Sequence[Episode], hit: Callable[[Episode], bool]) -> Rate:
    return rate_of([e for e in episodes if e.outcome.scored], hit)


def _solved(episodes: Sequence[Episode] | None, hit: Callable[[Episode], bool] = is_solved) -> Markup | None:
    return None if episodes is None else _rate_cell(_rate(episodes, hit))


def _rate_cell(rate: Rate) -> Markup | None:
    return _estimate(rate.count / rate.n, rate.interval, f"{rate.count}/{rate.n}") if rate.n else None


def _estimate(value: float, bounds: Interval, basis: str) -> Markup:
    """A cell with a share in percent, its basis and interval."""
    return macro("parts", "estimate")(f"{100 * value:.2f}", basis, percent_interval(bounds.low, bounds.high))


def _name_cell(row: Row, columns: Sequence[str], taught: bool = False) -> Markup:
    """The name of a row, and below it the conditions that matter for these columns."""
    return noted(row.name, row.played_as(columns, taught))


def _printed(value: float | None) -> Markup | None:
    return None if value is None else numeric(f"{value:.2f}")
