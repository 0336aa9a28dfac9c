"""The section of a page on one benchmark: success by category, comparisons in pairs, missing scores, every episode.

Knows tables and figures; nothing of training."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from markupsafe import Markup

from lemur_ray.agents.policy_spec import KINDS
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.report.escape import printable
from lemur_ray.report.pages import figures
from lemur_ray.report.pages.caveats import unscored_and_overflowed
from lemur_ray.report.pages.figures import Mark
from lemur_ray.report.pages.markup import (
    MANY,
    count_text,
    cut_text,
    noted,
    numeric,
    percent,
    percent_interval,
    rate_text,
    table,
    warning,
)
from lemur_ray.report.pages.rendering import macro, render
from lemur_ray.report.pages.transcript_pages import EPISODE_LIST
from lemur_ray.report.pages.transcripts import mark
from lemur_ray.report.paper import COLUMNS, FIGURE_5_GPT_4, SQL_BY_TURN
from lemur_ray.report.policy_results import (
    UNTRAINED,
    PolicyComparison,
    PolicyResult,
    comparisons,
    solved_without_skill,
)
from lemur_ray.report.protocol import differences, incomplete_tasks
from lemur_ray.report.statistics import PairedTest

Results = Sequence[PolicyResult]
_EXTERNAL_CALLS = {
    "calls": "questions", "seconds": "seconds", "prompt_tokens": "tokens in", "completion_tokens": "tokens out",
    "disclosed": "solutions disclosed", "unsaid": "without words",
}  # fmt: skip
"""Counts of external calls and their column."""
MANY_TASKS = 100
"""Maximum number of task names in a table."""
_COLOURS = {UNTRAINED: 4, KINDS["expert"].baseline: 2}
"""Colours of baselines beside models; others are grey."""
_DETECTABLE = (
    "Detectable with 80 % power: the smallest difference in points that so many tasks reveal four times out of five."
)
_BOOTSTRAP = (
    " Where tasks were played several times, a task is one observation, and where they come in clusters, a "
    "cluster is: the interval is a bootstrap over these, the p-value comes from flipping the signs of their "
    "differences, both from a seed."
)


def section(benchmark: str, results: Results, earlier: Results = ()) -> Markup:
    """The section of a page on one benchmark as HTML. ``results``: as ``policy_results.with_distinct_names`` orders
    them; ``earlier``: results of earlier versions of the policies, listed last."""
    colours = _colours(results)
    pairs, pairs_note = _pairs(results)
    listed = any(r.links for r in results)
    return render(
        "agents",
        missing=warning(unscored_and_overflowed(results)),
        legend=figures.legend([(r.name, colour) for r, colour in zip(results, colours, strict=True)]),
        success=_success_figure(benchmark, results, colours),
        remarks=" ".join(_remarks(results)),
        ctf=_published_ctf() if _in_column(results, "IC-CTF") else "",
        numbers=_numbers(results),
        floor=_floor(results),
        endings=_endings(results),
        external_calls=_external_calls(results),
        pairs=pairs,
        pairs_note=pairs_note,
        by_turn=_by_turn(results, colours),
        published=_published(results),
        by_kind="" if listed else _by_kind(results),
        squares=[(r.name, _squares(r)) for r in results] if listed else [],
        earlier=_earlier(earlier),
    )


def _remarks(results: Results) -> list[str]:
    """Remarks for readers who compare scores: those of the benchmark, and settings that differ between models."""
    remarks = [*dict.fromkeys(line for r in results for line in r.about.beside)]
    models = [r for r in results if not r.baseline]
    apart = differences([r.about for r in models])
    if any(apart):
        each = "; ".join(f"{r.name}: {', '.join(words)}" for r, words in zip(models, apart, strict=True))
        remarks.append(f"The settings of these runs differ. {each}.")
    return remarks


def _published_ctf() -> Markup:
    """The paper's Figure 5 as a table."""
    pairs = FIGURE_5_GPT_4.values()
    counts = [*pairs, (sum(hits for hits, _ in pairs), sum(n for _, n in pairs))]
    cells = [macro("parts", "followed")(f"{100 * hits / n:.1f} %", f"{hits}/{n}") for hits, n in counts]
    return table(["published, of 100 tasks", *FIGURE_5_GPT_4, "all"], [["gpt-4, published", *cells]])


def _success_figure(benchmark: str, results: Results, colours: Sequence[int | None]) -> Markup:
    names = list(dict.fromkeys(["all", *(g.name for r in results for g in r.report.categories)]))
    if len(names) == 2:
        names = ["all"]
    rows = []
    for name in names:
        marks = []
        for r, colour in zip(results, colours, strict=True):
            group = {"all": r.report.overall, **{g.name: g for g in r.report.categories}}.get(name)
            if group is None:
                continue
            bounds = group.success.interval
            text = count_text(group.success) if group.scored else "none scored"
            marks.append(Mark(r.name, group.success.value, bounds.low, bounds.high, text, colour))
        rows.append((name.replace("_", " "), marks))
    return figures.intervals(rows, label=f"Success on {benchmark} by category, with 95 % Wilson intervals")


def _colours(results: Results) -> list[int | None]:
    """Models in colour, baselines in grey; without a model, every policy in colour."""
    if all(r.baseline for r in results):
        return list(range(len(results)))
    models = iter(range(len(results)))
    return [_COLOURS.get(r.baseline) if r.baseline else 5 if (i := next(models)) == 0 else i for r in results]


def _models(results: Results) -> frozenset[int]:
    return frozenset(i for i, r in enumerate(results) if not r.baseline)


def _numbers(results: Results) -> Markup:
    several = any(r.report.macro for r in results)
    models = any(r.report.overall.has_replies_of_a_model for r in results)
    short, rows = figures.short, []
    for r in results:
        g = r.report.overall
        row = {"policy": noted(r.name, "; ".join(r.about.here)), "episodes": g.n}
        row["solved of scored [95 %]"] = numeric(rate_text(g.success))
        row |= {"mean of kinds [95 %]": _macro_average(r)} if several else {}
        row |= {"cut replies": numeric(cut_text(g))} if models else {}
        row["mean score"] = None if g.mean_score is None else numeric(f"{g.mean_score:.3f}")
        invalid = g.invalid_actions
        row["invalid actions"] = macro("parts", "followed")(percent(invalid.value), f"of {invalid.n:,}")
        row["turns when solved"] = None if g.mean_turns_solved is None else numeric(f"{g.mean_turns_solved:.1f}")
        row["retried"] = numeric(f"{g.retried.count}/{g.retried.n}")
        row["tokens in / out"] = numeric(f"{short(g.prompt_tokens, 3)} / {short(g.completion_tokens, 3)}")
        rows.append(row)
    return table([*rows[0]], [[*row.values()] for row in rows], _models(results))


def _floor(results: Results) -> Markup:
    """Rates without the tasks that need no skill, and the names of these; empty if no baseline solves any."""
    tasks = solved_without_skill(results)
    if not tasks:
        return Markup("")
    header = [f"without the {len(tasks)} tasks that doing nothing or random actions solve", "solved of scored [95 %]"]
    rows = [[r.name, numeric(rate_text(r.rate_without(tasks)))] for r in results]
    return table(header, [*rows, ["these tasks", ", ".join(tasks[:MANY_TASKS])]], _models(results))


def _endings(results: Results) -> Markup:
    outcomes = sorted({o for r in results for o in r.report.overall.outcomes})
    rows = [[r.name, *(r.report.overall.outcomes.get(o, 0) for o in outcomes)] for r in results]
    return table(["how episodes ended", *(o.replace("_", " ") for o in outcomes)], rows, _models(results))


def _macro_average(result: PolicyResult) -> Markup | None:
    if result.report.macro is None:
        return None
    value, bounds = result.report.macro
    return numeric(f"{value * 100:.1f} % {percent_interval(bounds.low, bounds.high)}")


def _external_calls(results: Results) -> Markup:
    """Calls of environments to other services; empty if there were none."""
    rows = [
        [r.name, name.replace("_", " "), *(numeric(figures.short(counts.get(c, 0), 3)) for c in _EXTERNAL_CALLS)]
        for r in results
        for name, counts in r.report.overall.outside.items()
    ]
    return table(["calls of environments", "service", *_EXTERNAL_CALLS.values()], rows) if rows else Markup("")


def _pairs(results: Results) -> tuple[Markup, str]:
    """The table of comparisons and its note; empty for fewer than two comparable policies."""
    pairs = comparisons(results)
    if not pairs:
        return Markup(""), ""
    rows = [
        [
            macro("parts", "pair")(c.first.name, c.second.name, c.different_settings),
            d.n,
            Markup(f"{d.difference * 100:+.1f} [{d.interval.low * 100:+.1f},&nbsp;{d.interval.high * 100:+.1f}]"),
            d.only_a,
            d.only_b,
            None if d.detectable is None else numeric(f"{d.detectable * 100:.1f}"),
            _p_value(d.p_value),
            *([_p_value(c.p_holm)] if len(pairs) > 1 else []),
        ]
        for c in pairs
        for d in (c.difference,)
    ]
    tests = " or ".join(sorted({c.difference.test for c in pairs}))
    header = ["on the same tasks", "tasks", "difference in points [95 %]", "more by the first", "more by the second"]
    header += ["detectable with 80 % power", f"p ({tests})", *(["p, Holm"] if len(pairs) > 1 else [])]
    return table(header, rows, kind=MANY), _pairs_note(pairs)


def _pairs_note(pairs: Sequence[PolicyComparison]) -> str:
    note = _DETECTABLE
    if len(pairs) > 1:
        note += (
            " Every pair is compared, so of twenty p-values one is below 0.05 by chance alone; the last column is "
            f"adjusted for all {len(pairs)} pairs."
        )
    return note + (_BOOTSTRAP if any(c.difference.test is not PairedTest.MCNEMAR for c in pairs) else "")


def _p_value(value: float | None) -> Markup | None:
    return None if value is None else Markup(f"{value:.2g}" if value >= 1e-4 else "&lt;&nbsp;0.0001")


def _earlier(earlier: Results) -> Markup:
    if not earlier:
        return Markup("")
    named = [(r.report.policy, r.report.recipe[:6], r.report.overall) for r in earlier]
    rows = [[policy, recipe, overall.n, numeric(rate_text(overall.success))] for policy, recipe, overall in named]
    return table(["policy and version", "settings", "episodes", "solved of scored [95 %]"], rows)


def _by_turn(results: Results, colours: Sequence[int | None]) -> Markup:
    """Share solved within so many turns, for policies that solved something in more than one turn."""
    series = {}
    for r in results:
        scored = [e for e in r.episodes if e.outcome.scored]
        solved = [len(e.trajectory.steps) for e in scored if e.outcome is Outcome.SOLVED]
        if solved and max(solved) > 1:
            last = max(len(e.trajectory.steps) for e in scored)
            series[r.name] = [(t, 100 * sum(s <= t for s in solved) / len(scored)) for t in range(last + 1)]
    if not series:
        return Markup("")
    by_name = dict(zip((r.name for r in results), colours, strict=True))
    if _in_column(results, "IC-SQL"):
        for name, shares in SQL_BY_TURN.items():
            series[name], by_name[name] = [(t, share) for t, share in enumerate(shares, 1)], None
    return figures.curves(series, x_label="turn", y_label="solved, %", window=1, digits=1, colours=by_name)


def _in_column(results: Results, column: str) -> bool:
    """Whether some run is of the tasks of a column of the paper."""
    return any(r.about.column == column for r in results)


def _published(results: Results) -> Mapping[str, object] | None:
    """Page values of a table with our models' rows and then the paper's, for the paper's column that the runs belong
    to; None if they belong to none."""
    of_column = [r for r in results if r.about.column]
    if not of_column:
        return None
    column, protocol = COLUMNS[of_column[0].about.column], of_column[0].about.other_protocol
    ours = [r for r in of_column if not r.baseline]
    rows = [[r.name, numeric(rate_text(r.report.overall.success)), _departures(r)] for r in ours]
    where = f"{column.table}, n = {column.n}"
    rows += [[model, numeric(f"{value:.2f} %"), where] for model, value in column.values.items()]
    note = (
        f"{column.setting}. "
        + (f"Another protocol than here: {protocol}. " if protocol else "")
        + "These models have 34 to 70 billion parameters or more and other tasks; the rows are here for scale."
        + (f" {column.note}" if column.note else "")
    )
    shown = table(["model", "solved", "where"], rows, frozenset(range(len(ours))))
    return {"column": column.column, "table": shown, "note": note}


def _departures(result: PolicyResult) -> str:
    """How a run of ours departs from the column of its row."""
    about = result.about
    if about.other_protocol:
        return "this run"
    apart = [f"{about.part} alone"] if about.part else []
    apart += about.departures
    if about.grader and (grader := f"{about.grader} grader") not in apart and about.known:
        apart.append(grader)
    feedback = f"feedback: {about.teacher}" if about.teacher else ""
    return ", ".join(filter(None, ["this run", *apart, feedback, incomplete_tasks(about.column, result.episodes)]))


def _squares(result: PolicyResult) -> list[tuple[str, str, str]]:
    """CSS class, link and label of each episode, by category."""
    ranked = sorted(zip(result.episodes, result.links, strict=True), key=lambda pair: pair[0].category)
    labels = (f"{e.category} · {e.key.task}: {e.outcome.value}, {len(e.trajectory.steps)} turns" for e, _ in ranked)
    return [(mark(episode), link, label) for (episode, link), label in zip(ranked, labels, strict=True)]


def _by_kind(results: Results) -> Markup:
    """Counts by category, for more episodes than a page shows; each links to the list of episodes."""
    kinds = list(dict.fromkeys(g.name for r in results for g in r.report.categories))
    of = {r.name: {g.name: g for g in r.report.categories} for r in results}
    rows = [[_link(results, kind), *(g.n if (g := of[r.name].get(kind)) else None for r in results)] for kind in kinds]
    return table(["kind of task", *(r.name for r in results)], rows, kind=MANY)


def _link(results: Results, kind: str) -> Markup:
    query = urlencode({"benchmark": results[0].report.benchmark, "kind": printable(kind)}, errors="replace")
    return macro("parts", "link")(f"{EPISODE_LIST}#{query}", kind)
