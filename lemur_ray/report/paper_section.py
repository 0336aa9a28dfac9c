"""The paper's own tables and figures with a row for each of our models: Tables 4 to 7, 9 and 10, Figures 3 and 5.

A cell of ours is solved of scored episodes with its interval, a cell of the paper the printed number. Only tables for
which there are episodes are drawn, and an average only where all its columns are there. Knows no other section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.report import figures
from lemur_ray.report.escape import inline
from lemur_ray.report.markup import Safe, rate_text, table, warning
from lemur_ray.report.mint_tables import CODE, REASONING, Count, SubsetCounts, count_episodes
from lemur_ray.report.paper import COLUMNS, MODEL_OF_LOG, MODELS, NOTES, TABLE_4_MICRO, TABLE_6, TABLE_9, TABLE_10
from lemur_ray.report.tables import Rate

_FEEDBACK = "\nExpert feedback:\n"
_TABLES: Mapping[str, Sequence[str]] = {
    "Table 4": [f"mint/{subset}" for subset in REASONING],
    "Table 5": [*(f"mint/{subset}" for subset in CODE), "intercode/bash", "intercode/sql", "robocodegen"],
    "Table 7": ["intercode/ctf", "webarena", "mint/alfworld"],
}
_TITLES = {
    "Table 4": "augmenting with tools",
    "Table 5": "self-debugging with the environment's feedback",
    "Table 7": "exploring environments that show themselves in part",
}
_HARDNESS = ("easy", "medium", "hard", "extra")
_MINT_TURNS = 5


@dataclass
class Row:
    """One of our models: its episodes by benchmark, with and without a teacher's feedback."""

    name: str
    plain: dict[str, list[Episode]] = field(default_factory=dict)
    taught: dict[str, list[Episode]] = field(default_factory=dict)

    def counts(self, taught: bool = False) -> dict[str, SubsetCounts]:
        """MINT's subset -> its counts."""
        runs = self.taught if taught else self.plain
        return {b.removeprefix("mint/"): count_episodes(run) for b, run in runs.items() if b.startswith("mint/")}


def rows_of(runs: Sequence[tuple[str, Sequence[Episode]]]) -> list[Row]:
    """(name of the policy, episodes of one benchmark) as rows by model.

    A run in which any observation holds a teacher's words is one with feedback. A replay of MINT's recorded runs is
    named as the paper names their model.
    """
    rows: dict[str, Row] = {}
    for policy, episodes in runs:
        name = model_name(policy)
        row = rows.setdefault(name, Row(name))
        taught = any(_FEEDBACK in step.observation for e in episodes for step in e.trajectory.steps)
        (row.taught if taught else row.plain)[episodes[0].key.benchmark] = list(episodes)
    return list(rows.values())


def model_name(policy: str) -> str:
    """``replay:gpt-3.5-turbo-0613/F=None`` is the recorded gpt-3.5-turbo; every other policy is its own name."""
    if not policy.startswith("replay:"):
        return policy
    model = policy.removeprefix("replay:").partition("/F=")[0]
    return f"{MODEL_OF_LOG.get(model, model)}, recorded"


def section(runs: Sequence[tuple[str, Sequence[Episode]]]) -> str:
    """All tables and figures of the paper that these runs have a part of; empty where they have none."""
    rows = rows_of(runs)
    parts = [_success(name, columns, rows) for name, columns in _TABLES.items()]
    parts += [_feedback(rows), _errors(rows), _hardness(rows), _by_turn(rows), _graders(rows)]
    body = "".join(parts)
    if not body:
        return ""
    said = (
        "Rows without an interval are printed in the paper; ours are solved of scored episodes with 95 % Wilson "
        "intervals. Compare rows of one protocol only: every table names it."
    )
    return f'<p class="soft">{said}</p>{body}{warning(NOTES) if "Table 6" in body else ""}'


def _success(name: str, columns: Sequence[str], rows: Sequence[Row]) -> str:
    ours = [row for row in rows if any(column in row.plain for column in columns)]
    if not ours:
        return ""
    with_average = name == "Table 4"
    header = ["model", *(COLUMNS[c].column for c in columns), *(["micro average"] if with_average else [])]
    lines: list[list[object]] = []
    for row in ours:
        cells: list[object] = [row.name, *(_rate(row.plain.get(c)) for c in columns)]
        if with_average:
            cells.append(_of(_sum(row.counts(), REASONING)))
        lines.append(cells)
    for model in MODELS:
        printed: list[object] = [model, *(_printed(COLUMNS[c].values.get(model)) for c in columns)]
        lines.append([*printed, _printed(TABLE_4_MICRO.get(model))] if with_average else printed)
    settings = {COLUMNS[c].setting for c in columns if any(c in row.plain for row in ours)}
    notes = [COLUMNS[c].note for c in columns if COLUMNS[c].note and any(c in row.plain for row in ours)]
    return (
        f"<h3>{name}: {_TITLES[name]}</h3>"
        + table(header, lines, frozenset(range(len(ours))))
        + f'<p class="soft">{inline(". ".join([*sorted(settings), *notes]))}</p>'
    )


def _feedback(rows: Sequence[Row]) -> str:
    """Table 6: reasoning, code and both (ALFWorld is not in it), without and with a teacher."""
    header = ["model", "reasoning", "code", "both", "reasoning, taught", "code, taught", "both, taught", "gain"]
    groups = (REASONING, CODE, REASONING + CODE)
    lines: list[list[object]] = []
    for row in rows:
        sums = [_sum(counts, group) for counts in (row.counts(), row.counts(taught=True)) for group in groups]
        if any(sums[3:]):
            before, after = sums[2], sums[5]
            gain = None if before is None or after is None else 100 * (after.hits / after.n - before.hits / before.n)
            lines.append([row.name, *map(_of, sums), None if gain is None else Safe(f"{gain:+.2f}")])
    if not lines:
        return ""
    strong = frozenset(range(len(lines)))
    for printed in TABLE_6:
        taught = printed.with_feedback or (None, None, None)
        gain_printed = None if printed.gain is None else Safe(f"{printed.gain:+.2f}")
        lines.append([printed.model, *map(_printed, printed.without), *map(_printed, taught), gain_printed])
    return f"<h3>Table 6: with a teacher's feedback</h3>{table(header, lines, strong)}"


def _errors(rows: Sequence[Row]) -> str:
    """Table 9: of all episodes of M-MATH, those that failed and saw a traceback, or had an invalid action."""
    counted = [(row.name, row.counts()["math"]) for row in rows if "mint/math" in row.plain]
    if not counted:
        return ""
    header = ["model", "failed with a traceback", "failed with an invalid action"]
    lines: list[list[object]] = [[name, _of(c.with_traceback), _of(c.with_invalid)] for name, c in counted]
    lines += [[model, *map(_printed, TABLE_9[model])] for model in MODELS if model in TABLE_9]
    return f"<h3>Table 9: why M-MATH fails</h3>{table(header, lines, frozenset(range(len(counted))))}"


def _hardness(rows: Sequence[Row]) -> str:
    """Table 10: InterCode-SQL by hardness, where the run was on Spider."""
    ours = []
    for row in rows:
        episodes = row.plain.get("intercode/sql", [])
        if {e.category for e in episodes} <= set(_HARDNESS) and episodes:
            by = [[e for e in episodes if e.category == hardness] for hardness in _HARDNESS]
            ours.append([row.name, *map(_rate, by), _rate(episodes)])
    if not ours:
        return ""
    lines: list[list[object]] = [list(cells) for cells in ours]
    for model, solved in TABLE_10.items():
        n = (248, 446, 174, 166)
        shares = [100 * hits / of for hits, of in zip((*solved, sum(solved)), (*n, sum(n)), strict=True)]
        lines.append([model, *map(_printed, shares)])
    header = ["model", *_HARDNESS, "all"]
    return f"<h3>Table 10: InterCode-SQL by hardness</h3>{table(header, lines, frozenset(range(len(ours))))}"


def _by_turn(rows: Sequence[Row]) -> str:
    """Figure 3: share of MINT's tasks solved within so many turns."""
    series = {}
    for row in rows:
        for runs, suffix in ((row.plain, ""), (row.taught, ", taught")):
            scored = [e for b, run in runs.items() if b.startswith("mint/") for e in run if e.outcome.scored]
            solved = [len(e.trajectory.steps) for e in scored if e.outcome is Outcome.SOLVED]
            if scored:
                points = range(1, _MINT_TURNS + 1)
                series[row.name + suffix] = [(k, 100 * sum(s <= k for s in solved) / len(scored)) for k in points]
    if not series:
        return ""
    drawn = figures.curves(series, x_label="turn", y_label="solved, %", window=1, digits=1)
    return f"<h3>Figure 3: MINT, solved within so many turns</h3>{drawn}"


def _graders(rows: Sequence[Row]) -> str:
    """What the graders say of the same episodes. The one that did not end an episode is a lower bound."""
    names = sorted({name for row in rows for run in row.plain.values() for e in run for name in e.scores})
    lines: list[list[object]] = []
    for row in rows:
        for benchmark, run in sorted(row.plain.items()):
            graded = [e for e in run if e.outcome.scored and e.scores]
            if not graded or len(names) < 2:
                continue
            solved = {name: {e.key.task for e in graded if e.scores.get(name, 0.0) >= 1.0} for name in names}
            first, *others = solved.values()
            parted = first.union(*others) - first.intersection(*others)
            shown = ", ".join(sorted(parted)[:8]) + (", ..." if len(parted) > 8 else "")
            rates = [Safe(rate_text(Rate(len(solved[name]), len(graded)))) for name in names]
            lines.append([f"{row.name}, {benchmark}", *rates, len(parted), shown or None])
    if not lines:
        return ""
    header = ["model and benchmark", *names, "tasks on which they part", "which"]
    return f"<h3>Where the graders part</h3>{table(header, lines)}"


def _sum(counts: Mapping[str, SubsetCounts], subsets: Sequence[str]) -> Count | None:
    """Successes over several subsets; None where one of them was not played."""
    if any(subset not in counts or not counts[subset].solved.n for subset in subsets):
        return None
    return sum((counts[subset].solved for subset in subsets), Count(0, 0))


def _rate(episodes: Sequence[Episode] | None) -> Safe | None:
    scored = [e for e in episodes or () if e.outcome.scored]
    return _of(Count(sum(e.outcome is Outcome.SOLVED for e in scored), len(scored))) if scored else None


def _of(count: Count | None) -> Safe | None:
    if count is None or not count.n:
        return None
    bounds = Rate(count.hits, count.n).interval
    return Safe(
        f"<b>{100 * count.hits / count.n:.2f}</b> <span class='soft'>{count.hits}/{count.n} "
        f"[{bounds.low * 100:.1f}, {bounds.high * 100:.1f}]</span>"
    )


def _printed(value: float | None) -> Safe | None:
    return None if value is None else Safe(f"{value:.2f}")
