"""The paper's own tables and figures with a row for each of our models: Tables 3 to 7, 9 and 10, Figures 3 and 4.

A cell of ours is solved of scored episodes with its interval, a cell of the paper the printed number. Only tables for
which there are episodes are drawn, and an average only where all its columns are there. Knows no other section.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from lemur_ray.agents.trajectory import Episode
from lemur_ray.report.escape import inline
from lemur_ray.report.pages import figures
from lemur_ray.report.pages.markup import MANY, Safe, rate_text, table, warning
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
from lemur_ray.report.paper_groups import CODE, DECISION, GROUPS, REASONING, had_invalid_action, saw_traceback
from lemur_ray.report.paper_rows import PaperRun, Row, Runs, paired_runs, rows_of
from lemur_ray.report.statistics import Interval, mcnemar, mean_of_macros, stratified_mean
from lemur_ray.report.strata import Stratum, solved_or_not, strata_of, units_of
from lemur_ray.report.tables import Rate, compare, is_solved, rate_of

_TABLES: Mapping[str, Sequence[str]] = {
    "Table 3": [column.column for column in COLUMNS.values() if column.table == "Table 3"],
    "Table 4": REASONING,
    "Table 5": [*CODE, "IC-Bash", "IC-SQL", "RoboCodeGen"],
    "Table 7": ["IC-CTF", "WebArena", *DECISION],
}
_TITLES = {
    "Table 3": "language and code",
    "Table 4": "augmenting with tools",
    "Table 5": "self-debugging with the environment's feedback",
    "Table 7": "exploring environments that show themselves in part",
}
_HARDNESS = ("easy", "medium", "hard", "extra")
_MINT_TURNS = 5
_FIGURE_4_SAID = (
    "Printed are differences of 3, 5 and 3 of 812 tasks; one standard error of a rate of 5 % is 6 tasks, so none is "
    "significant by itself. Intervals of ours are clustered by template of task."
)


def section(runs: Sequence[PaperRun]) -> str:
    """All tables and figures of the paper that these runs have a part of; empty where they have none."""
    rows = rows_of(runs)
    parts = [_success(name, columns, rows) for name, columns in _TABLES.items()]
    parts += [_feedback(rows), _errors(rows), _hardness(rows), _by_turn(rows), _both_ways(runs), _graders(rows)]
    body = "".join(parts)
    if not body:
        return ""
    said = (
        "Rows without an interval are printed in the paper; ours are solved of scored episodes with 95 % Wilson "
        "intervals, clustered by task where tasks were played several times and by what tasks have in common; means "
        "have bootstrap intervals. In brackets stands where a row departs "
        "from the paper's protocol, and below its name by which grader it was judged, of which columns it has not all "
        "tasks and which were played otherwise, each by itself: compare rows of one protocol only."
    )
    return f'<p class="soft">{said}</p>{body}{warning(NOTES) if "Table 6" in body else ""}'


def _success(name: str, columns: Sequence[str], rows: Sequence[Row]) -> str:
    ours = [row for row in rows if any(row.of_column(column) for column in columns)]
    if not ours:
        return ""
    average = {"Table 3": "average", "Table 4": "micro average"}.get(name, "")
    header = ["model", *columns, *filter(None, [average])]
    lines: list[list[object]] = []
    for row in ours:
        cells: list[object] = [_who(row, columns), *(_every_way(COLUMNS[c], row) for c in columns)]
        if average:
            pooled = name == "Table 4"
            cells.append(_solved(_pooled(row.plain, REASONING)) if pooled else _average(row.plain, columns))
        lines.append(cells)
    for model in (model for model in MODELS if any(model in COLUMNS[c].values for c in columns)):
        printed: list[object] = [model, *(_printed(COLUMNS[c].values.get(model)) for c in columns)]
        if average:
            told = _printed(TABLE_4_MICRO.get(model))
            printed.append(told if name == "Table 4" else _printed_average(model, columns))
        lines.append(printed)
    settings = {COLUMNS[c].setting for c in columns if any(row.of_column(c) for row in ours)}
    whole = [one for one in sorted(settings) if not any(one != other and one in other for other in settings)]
    notes = [COLUMNS[c].note for c in columns if COLUMNS[c].note and any(row.of_column(c) for row in ours)]
    return (
        f"<h3>{name}: {_TITLES[name]}</h3>"
        + table(header, lines, frozenset(range(len(ours))), MANY)
        + f'<p class="soft">{inline(" ".join(said.rstrip(".") + "." for said in [*whole, *notes]))}</p>'
    )


def _every_way(column: Published, row: Row) -> Safe | None:
    """A column's own cell, and below it what came of further ways to play it."""
    cells = {way: _of_column(column, episodes) for way, episodes in row.of_column(column.column).items()}
    lines = [f"{inline(f'{way}: ') if way else ''}{cell}" for way, cell in cells.items() if cell is not None]
    return Safe("<br>".join(lines)) if lines else None


def _of_column(column: Published, episodes: Sequence[Episode] | None) -> Safe | None:
    """The share of all tasks that is solved, or the mean over kinds where the column is one."""
    strata = strata_of(episodes or ())
    if not strata:
        return None
    if not column.mean_of:
        share = _solved(episodes)
        if share is None or not column.beside or len(strata) < 2:
            return share
        mean = math.fsum(math.fsum(values) / len(values) for values, _ in strata.values()) / len(strata)
        return Safe(f"{share}<br><span class='soft'>mean of {len(strata)} {column.beside} {100 * mean:.2f}</span>")
    said = f"mean of {len(strata)} {column.mean_of}" if len(strata) > 1 else next(iter(strata))
    return _mean(*stratified_mean([*strata.values()]), said)


def _average(runs: Runs, columns: Sequence[str]) -> Safe | None:
    """The mean of all columns, each as its cell has it; None where one has no episode with a score."""
    groups: list[list[Stratum]] = []
    for column in columns:
        scored = [e for e in runs.get(column, ()) if e.outcome.scored]
        strata = [*strata_of(scored).values()]
        whole = (solved_or_not(scored), units_of(scored)[0])
        groups.append(strata if COLUMNS[column].mean_of else [whole] if scored else [])
    return _mean(*mean_of_macros(groups), f"mean of {len(columns)}") if all(groups) else None


def _mean(value: float, bounds: Interval, said: str) -> Safe:
    inside = f"{inline(said)} <i>[{bounds.low * 100:.1f}, {bounds.high * 100:.1f}]</i>"
    return Safe(f"<b>{100 * value:.2f}</b> <br><span class='soft'>{inside}</span>")


def _printed_average(model: str, columns: Sequence[str]) -> Safe | None:
    """The mean of the printed numbers, and what is printed where that is another."""
    values = [COLUMNS[c].values[model] for c in columns if model in COLUMNS[c].values]
    mean, told = math.fsum(values) / max(1, len(values)), TABLE_3_AVERAGE.get(model)
    if len(values) < len(columns) or told is None:
        return None
    apart = f"<br><span class='soft'>printed {told:.2f}</span>" if abs(mean - told) > 0.1 else ""
    return Safe(f"{mean:.2f}{apart}")


def _feedback(rows: Sequence[Row]) -> str:
    """Table 6: reasoning, code and both (ALFWorld is not in it), without and with a teacher."""
    header = ["model", "reasoning", "code", "both", "reasoning, taught", "code, taught", "both, taught", "gain"]
    groups = (REASONING, CODE, REASONING + CODE)
    lines: list[list[object]] = []
    for row in rows:
        sums = [_pooled(part, group) for part in (row.before or row.plain, row.taught) for group in groups]
        if any(sums[3:]):
            before, after = (
                None if pooled is None else _rate(pooled, is_solved).value for pooled in (sums[2], sums[5])
            )
            gain = None if before is None or after is None else 100 * (after - before)
            who = _who(row, REASONING + CODE, taught=True)
            lines.append([who, *map(_solved, sums), None if gain is None else Safe(f"{gain:+.2f}")])
    if not lines:
        return ""
    strong = frozenset(range(len(lines)))
    for printed in TABLE_6:
        taught = printed.with_feedback or (None, None, None)
        gain_printed = None if printed.gain is None else Safe(f"{printed.gain:+.2f}")
        lines.append([printed.model, *map(_printed, printed.without), *map(_printed, taught), gain_printed])
    return f"<h3>Table 6: with a teacher's feedback</h3>{table(header, lines, strong, MANY)}"


def _errors(rows: Sequence[Row]) -> str:
    """Table 9: of all episodes of M-MATH, those that failed and saw a traceback, or had an invalid action."""
    lines: list[list[object]] = []
    for row in rows:
        if math := row.plain.get("M-MATH"):
            cells = [_cell(math, _failed_with(sign)) for sign in (saw_traceback, had_invalid_action)]
            lines.append([_who(row, ["M-MATH"]), *cells])
    if not lines:
        return ""
    strong = frozenset(range(len(lines)))
    lines += [[model, *map(_printed, TABLE_9[model])] for model in MODELS if model in TABLE_9]
    header = ["model", "failed with a traceback", "failed with an invalid action"]
    return f"<h3>Table 9: why M-MATH fails</h3>{table(header, lines, strong, MANY)}"


def _failed_with(sign: Callable[[Episode], bool]) -> Callable[[Episode], bool]:
    return lambda episode: not is_solved(episode) and sign(episode)


def _hardness(rows: Sequence[Row]) -> str:
    """Table 10: InterCode-SQL by hardness. Rows hold Spider's questions alone."""
    lines: list[list[object]] = []
    for row in rows:
        if episodes := row.plain.get("IC-SQL"):
            by = [[e for e in episodes if e.category == hardness] for hardness in _HARDNESS]
            lines.append([_who(row, ["IC-SQL"]), *map(_solved, by), _solved(episodes)])
    if not lines:
        return ""
    strong = frozenset(range(len(lines)))
    for model, solved in TABLE_10.items():
        n = (248, 446, 174, 166)
        shares = [100 * hits / of for hits, of in zip((*solved, sum(solved)), (*n, sum(n)), strict=True)]
        lines.append([model, *map(_printed, shares)])
    header = ["model", *_HARDNESS, "all"]
    return f"<h3>Table 10: InterCode-SQL by hardness</h3>{table(header, lines, strong, MANY)}"


def _by_turn(rows: Sequence[Row]) -> str:
    """Figure 3: share of MINT's tasks solved within so many turns, one drawing for each set of pooled subsets."""
    by_subsets: dict[tuple[str, ...], list[tuple[str, list[Episode]]]] = {}
    for row in rows:
        for runs, suffix in ((row.plain, ""), (row.taught, f", taught by {row.teacher}")):
            subsets = tuple(subset for subset in GROUPS["all"] if subset in runs)
            pooled = _pooled(runs, subsets)
            if pooled:
                by_subsets.setdefault(subsets, []).append((row.name + suffix, pooled))
    points, parts = range(1, _MINT_TURNS + 1), []
    for subsets, series in sorted(by_subsets.items(), key=lambda item: -len(item[0])):
        rates = {name: [_rate(pooled, _solved_within(k)) for k in points] for name, pooled in series}
        lines = {
            name: [(k, 100 * (rate.value or 0.0)) for k, rate in zip(points, by, strict=True)]
            for name, by in rates.items()
        }
        drawn = figures.curves(lines, x_label="turn", y_label="solved, %", window=1, digits=1)
        which = "all eight subsets" if len(subsets) == len(GROUPS["all"]) else ", ".join(subsets)
        header = [f"solved within, pooled over {which}", *(f"{k} turn{'s' * (k > 1)}" for k in points)]
        cells = [[name, *(_shown(rate) for rate in by)] for name, by in rates.items()]
        parts.append(drawn + table(header, cells, kind=MANY))
    if not parts:
        return ""
    said = "No published numbers of this figure are at hand to stand beside these."
    title = "Figure 3: MINT, solved within so many turns"
    return f'<h3>{title}</h3>{"".join(parts)}<p class="soft">{said}</p>'


def _both_ways(runs: Sequence[PaperRun]) -> str:
    """Figure 4: the same tasks with symbolic actions and with Python calls, paired."""
    parts = []
    for column, printed in FIGURE_4.items():
        lines: list[list[object]] = []
        for model, pair in paired_runs([run for run in runs if run.about.column == column], FIGURE_4_VARIANTS):
            both = [run.episodes if run else None for run in pair]
            paired = compare(both[0], both[1]) if both[0] and both[1] else None
            apart = (
                [None] * 4
                if paired is None
                else [
                    f"{-100 * paired.difference:+.2f} [{-100 * paired.interval.high:+.1f}, "
                    f"{-100 * paired.interval.low:+.1f}], {paired.n} tasks",
                    paired.only_b,
                    paired.only_a,
                    f"{mcnemar(paired.only_a, paired.only_b):.3f}",
                ]
            )
            lines.append([model, *map(_solved, both), *apart])
        if lines:
            strong = frozenset(range(len(lines)))
            lines += [
                [model, *map(_printed, (a, b)), f"{b - a:+.2f}", *[None] * 3] for model, (a, b) in printed.items()
            ]
            apart_by = ["difference", "only with calls", "only with symbols", "McNemar's exact p"]
            header = ["model", *FIGURE_4_VARIANTS, *apart_by]
            parts.append(
                f"<h3>Figure 4: {inline(column)} in both action languages</h3>{table(header, lines, strong, MANY)}"
            )
            parts.append(f'<p class="soft">{_FIGURE_4_SAID}</p>')
    return "".join(parts)


def _solved_within(turns: int) -> Callable[[Episode], bool]:
    return lambda episode: is_solved(episode) and len(episode.trajectory.steps) <= turns


def _graders(rows: Sequence[Row]) -> str:
    """What the graders say of the same episodes. The one that did not end an episode is a lower bound."""
    every = [
        (f"{row.name}, {run[0].key.benchmark}{taught}", run)
        for row in rows
        for runs, taught in (
            (row.plain, ""),
            *((of, "") for of in row.ways.values()),
            (row.taught, f", taught by {row.teacher}"),
        )
        for _, run in sorted(runs.items())
    ]
    names = sorted({name for _, run in every for e in run for name in e.scores})
    lines: list[list[object]] = []
    for shown_as, run in every:
        graded = [e for e in run if e.outcome.scored and e.scores]
        if not graded or len(names) < 2:
            continue
        verdicts = {
            name: {(e.key.task, e.key.epoch) for e in graded if e.scores.get(name, 0.0) >= 1.0} for name in names
        }
        first, *others = verdicts.values()
        parted = sorted({task for task, _ in first.union(*others) - first.intersection(*others)})
        shown = ", ".join(parted[:8]) + (", ..." if len(parted) > 8 else "")
        rates = [Safe(rate_text(rate_of(graded, _solved_by(name)))) for name in names]
        lines.append([shown_as, *rates, len(parted), shown or None])
    if not lines:
        return ""
    header = ["model and benchmark", *names, "tasks on which they part", "which"]
    return f"<h3>Where the graders part</h3>{table(header, lines, kind=MANY)}"


def _solved_by(grader: str) -> Callable[[Episode], bool]:
    return lambda episode: episode.scores.get(grader, 0.0) >= 1.0


def _pooled(runs: Runs, subsets: Sequence[str]) -> list[Episode] | None:
    """The episodes of several of MINT's subsets; None where one of them was not played or nothing of it is scored."""
    parts = [runs.get(subset, ()) for subset in subsets]
    if not parts or not all(any(e.outcome.scored for e in part) for part in parts):
        return None
    return [e for part in parts for e in part]


def _rate(episodes: Sequence[Episode], hit: Callable[[Episode], bool]) -> Rate:
    return rate_of([e for e in episodes if e.outcome.scored], hit)


def _solved(episodes: Sequence[Episode] | None) -> Safe | None:
    return None if episodes is None else _cell(episodes, is_solved)


def _cell(episodes: Sequence[Episode], hit: Callable[[Episode], bool]) -> Safe | None:
    return _shown(_rate(episodes, hit))


def _shown(rate: Rate) -> Safe | None:
    if not rate.n:
        return None
    bounds = rate.interval
    return Safe(
        f"<b>{100 * rate.count / rate.n:.2f}</b> <br><span class='soft'>{rate.count}/{rate.n} "
        f"<i>[{bounds.low * 100:.1f}, {bounds.high * 100:.1f}]</i></span>"
    )


def _who(row: Row, columns: Sequence[str], taught: bool = False) -> Safe:
    """The name of a row, and below it what a reader must know of these columns."""
    played = row.played_as(columns, taught)
    return Safe(inline(row.name) + (f'<br><span class="soft">{inline(played)}</span>' if played else ""))


def _printed(value: float | None) -> Safe | None:
    return None if value is None else Safe(f"{value:.2f}")
