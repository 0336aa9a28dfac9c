"""The part of a page about agents: success by category, paired comparisons, what is missing, every episode.

Knows tables and figures; nothing of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.report.escape import inline, printable
from lemur_ray.report.pages import figures
from lemur_ray.report.pages.caveats import missing
from lemur_ray.report.pages.figures import Mark
from lemur_ray.report.pages.markup import MANY, Safe, percent, rate_text, table
from lemur_ray.report.pages.transcript_pages import EPISODE_LIST
from lemur_ray.report.pages.transcripts import squares
from lemur_ray.report.paper import COLUMNS, FIGURE_5_GPT_4, SQL_BY_TURN
from lemur_ray.report.policy_results import PolicyComparison, PolicyResult, comparisons
from lemur_ray.report.protocol import differences, incomplete_tasks
from lemur_ray.report.tables import Group, Report


def section(benchmark: str, played: Sequence[PolicyResult], earlier: Sequence[PolicyResult] = ()) -> str:
    """Everything about one benchmark; ``played`` as ``order`` gives it, ``earlier``: versions left out."""
    parts = [missing(played), _success_figure(benchmark, played), _beside(played), _numbers(played)]
    parts += [_differences(played), _by_turn(played), _published(played), _episodes(played)]
    parts.append(_earlier(earlier))
    return "".join(parts)


_OUTSIDE = ("calls", "seconds", "prompt_tokens", "completion_tokens", "disclosed", "unsaid")


def _beside(played: Sequence[PolicyResult]) -> str:
    """What must be read beside a score: what costs nothing, what may be known by heart, what the paper has by kind."""
    said = [*dict.fromkeys(line for p in played for line in p.about.beside)]
    models = [p for p in played if not p.is_baseline]
    apart = differences([p.about for p in models])
    if any(apart):
        each = "; ".join(f"{p.name}: {', '.join(words)}" for p, words in zip(models, apart, strict=True))
        said.append(f"These runs have other settings than one another. {each}.")
    lines = f'<p class="soft">{inline(" ".join(said))}</p>' if said else ""
    if not _has(played, "IC-CTF"):
        return lines
    pairs = FIGURE_5_GPT_4.values()
    counts = [*pairs, (sum(hits for hits, _ in pairs), sum(n for _, n in pairs))]
    cells = [Safe(f"{100 * hits / n:.1f} % <span class='soft'>{hits}/{n}</span>") for hits, n in counts]
    note = (
        "The paper's Figure 5 beside these: gpt-4 by category, counted in its log of 93 tasks, the other 7 as failed."
    )
    shown = table(["published, of 100 tasks", *FIGURE_5_GPT_4, "all"], [["gpt-4, published", *cells]])
    return f'{lines}{shown}<p class="soft">{inline(note)}</p>'


def _success_figure(benchmark: str, played: Sequence[PolicyResult]) -> str:
    colours = _colours(played)
    names = list(dict.fromkeys(["all", *(g.name for p in played for g in p.report.categories)]))
    if len(names) == 2:
        names = ["all"]
    rows = []
    for name in names:
        marks = []
        for p, colour in zip(played, colours, strict=True):
            group = _find(p.report, name)
            if group is None:
                continue
            bounds = group.success.interval
            text = rate_text(group.success).split(" [")[0] if group.scored else "none scored"
            marks.append(Mark(p.name, group.success.value, bounds.low, bounds.high, text, colour))
        rows.append((name.replace("_", " "), marks))
    drawn = figures.intervals(rows, label=f"Success on {benchmark} by category, with 95 % Wilson intervals")
    key = figures.legend([(p.name, colour) for p, colour in zip(played, colours, strict=True)])
    figure = " (the paper's Figure 5)" if _has(played, "IC-CTF") else ""
    return f"<h3>Solved, by kind of task{figure}</h3>{key}{drawn}"


def _colours(played: Sequence[PolicyResult]) -> list[int | None]:
    """Models in colour, baselines in grey; where there is no model, every policy in colour."""
    if all(p.is_baseline for p in played):
        return list(range(len(played)))
    models = iter(range(len(played)))
    spare = {"untrained model": 4, "random action": None, "expert": 2}
    return [spare.get(p.name) if p.is_baseline else 5 if (i := next(models)) == 0 else i for p in played]


def _find(report: Report, name: str) -> Group | None:
    groups = {"all": report.overall} | {g.name: g for g in report.categories}
    return groups.get(name)


def _numbers(played: Sequence[PolicyResult]) -> str:
    several = any(p.report.macro for p in played)
    header = ["policy", "episodes", "solved of scored [95 %]", *(["mean of kinds [95 %]"] if several else [])]
    header += ["mean score", "invalid actions", "turns when solved"]
    header += ["retried", "tokens in / out"]
    rows = []
    for p in played:
        g = p.report.overall
        invalid = f"{percent(g.invalid_actions.value)} <span class='soft'>of {g.invalid_actions.n:,}</span>"
        rows.append(
            [
                Safe(inline(p.name) + _as_played_here(p)),
                g.n,
                Safe(inline(rate_text(g.success))),
                *([_macro(p.report)] if several else []),
                None if g.mean_score is None else Safe(f"{g.mean_score:.3f}"),
                Safe(invalid),
                None if g.mean_turns_solved is None else Safe(f"{g.mean_turns_solved:.1f}"),
                Safe(f"{g.retried.count}/{g.retried.n}"),
                Safe(f"{figures.short(g.prompt_tokens, 3)} / {figures.short(g.completion_tokens, 3)}"),
            ]
        )
    strong = frozenset(i for i, p in enumerate(played) if not p.is_baseline)
    outcomes = sorted({o for p in played for o in p.report.overall.outcomes})
    ends = [[p.name, *(p.report.overall.outcomes.get(o, 0) for o in outcomes)] for p in played]
    heads = ["how episodes ended", *(o.replace("_", " ") for o in outcomes)]
    return table(header, rows, strong) + table(heads, ends, strong) + _outside(played)


def _macro(report: Report) -> Safe | None:
    if report.macro is None:
        return None
    value, bounds = report.macro
    return Safe(f"{value * 100:.1f} % [{bounds.low * 100:.1f}, {bounds.high * 100:.1f}]")


def _outside(played: Sequence[PolicyResult]) -> str:
    """What environments asked of others; empty where they asked nobody."""
    rows = [
        [p.name, name.replace("_", " "), *(Safe(_amount(counts.get(what, 0))) for what in _OUTSIDE)]
        for p in played
        for name, counts in p.report.overall.outside.items()
    ]
    header = [
        "asked by environments",
        "who",
        "questions",
        "seconds",
        "tokens in",
        "tokens out",
        "solutions given away",
        "without words",
    ]
    return table(header, rows) if rows else ""


def _amount(number: float) -> str:
    return figures.short(number, 3) if number else "0"


def _as_played_here(played: PolicyResult) -> str:
    """What was not as upstream has it where this run was played."""
    if not played.about.here:
        return ""
    return f'<br><span class="soft">{inline("; ".join(played.about.here))}</span>'


def _differences(played: Sequence[PolicyResult]) -> str:
    found = comparisons(played)
    if not found:
        return ""
    rows = [
        [
            Safe(f"{inline(c.first.name)} <i>against</i> {inline(c.second.name)}" + _settings_differ(c)),
            d.n,
            Safe(f"{d.difference * 100:+.1f} [{d.interval.low * 100:+.1f},&nbsp;{d.interval.high * 100:+.1f}]"),
            d.only_a,
            d.only_b,
            None if d.detectable is None else Safe(f"{d.detectable * 100:.1f}"),
            _p(d.p_value),
            *([_p(c.p_holm)] if len(found) > 1 else []),
        ]
        for c in found
        for d in (c.difference,)
    ]
    tests = " or ".join(sorted({c.difference.test for c in found}))
    header = ["on the same tasks", "tasks", "difference in points [95 %]", "more by the first", "more by the second"]
    header += ["seen with 80 % power", f"p ({tests})", *(["p, Holm"] if len(found) > 1 else [])]
    said = "Seen with 80 % power: the smallest difference in points that so many tasks would show four times of five."
    if len(found) > 1:
        said += (
            " Every pair is compared, so of twenty p-values one is below 0.05 by chance alone; the last column is "
            f"adjusted for all {len(found)} pairs."
        )
    if any(c.difference.test != "McNemar" for c in found):
        said += (
            " Where tasks were played several times, a task is one observation, and where they come in clusters, a "
            "cluster is: the interval is a bootstrap over these, the p-value comes from flipping the signs of their "
            "differences, both from a seed."
        )
    return table(header, rows, kind=MANY) + f'<p class="soft">{said}</p>'


def _p(value: float | None) -> Safe | None:
    return None if value is None else Safe(f"{value:.2g}" if value >= 1e-4 else "&lt;&nbsp;0.0001")


def _settings_differ(comparison: PolicyComparison) -> str:
    if not comparison.apart:
        return ""
    return f'<br><span class="soft">other settings: {inline(comparison.apart)}</span>'


def _earlier(earlier: Sequence[PolicyResult]) -> str:
    if not earlier:
        return ""
    rows = [
        [p.report.policy, p.report.recipe[:6], p.report.overall.n, Safe(inline(rate_text(p.report.overall.success)))]
        for p in earlier
    ]
    return "<h3>Earlier versions of these policies, not shown above</h3>" + table(
        ["policy and version", "settings", "episodes", "solved of scored [95 %]"], rows
    )


def _by_turn(played: Sequence[PolicyResult]) -> str:
    """Share solved within so many turns, for policies that solved something in more than one turn."""
    series = {}
    for p in played:
        scored = [e for e in p.episodes if e.outcome.scored]
        solved = [len(e.trajectory.steps) for e in scored if e.outcome is Outcome.SOLVED]
        if solved and max(solved) > 1:
            last = max(len(e.trajectory.steps) for e in scored)
            series[p.name] = [(t, 100 * sum(s <= t for s in solved) / len(scored)) for t in range(last + 1)]
    if not series:
        return ""
    colours = dict(zip((p.name for p in played), _colours(played), strict=True))
    if _has(played, "IC-SQL"):
        for name, shares in SQL_BY_TURN.items():
            series[name], colours[name] = [(t, share) for t, share in enumerate(shares, 1)], None
    drawn = figures.curves(series, x_label="turn", y_label="solved, %", window=1, digits=1, colours=colours)
    return f"<h3>Solved within so many turns</h3>{drawn}"


def _has(played: Sequence[PolicyResult], column: str) -> bool:
    """Whether some run is of the tasks of a column of the paper."""
    return any(p.about.column == column for p in played)


def _published(played: Sequence[PolicyResult]) -> str:
    names = dict.fromkeys(p.about.column for p in played if p.about.column)
    if not names:
        return ""  # the paper has nothing to stand beside
    column, protocol = COLUMNS[next(iter(names))], next(p.about.other_protocol for p in played if p.about.column)
    ours = [p for p in played if not p.is_baseline and p.about.column]
    rows = [[p.name, Safe(inline(rate_text(p.report.overall.success))), _where(p)] for p in ours]
    n = len(rows)
    rows += [
        [model, Safe(f"{value:.2f} %"), f"{column.table}, n = {column.n}"] for model, value in column.values.items()
    ]
    said = (
        f"{column.setting}. "
        + (f"Another protocol than here: {protocol}. " if protocol else "")
        + "These models have 34 to 70 billion parameters or more and other tasks; the rows are here for scale."
    )
    note = f" {column.note}" if column.note else ""
    return (
        f"<h3>Beside the paper's {inline(column.column)}</h3>"
        + table(["model", "solved", "where"], rows, frozenset(range(n)))
        + f'<p class="soft">{inline(said + note)}</p>'
    )


def _where(played: PolicyResult) -> str:
    """How a run of ours departs from the column it stands in."""
    about = played.about
    if about.other_protocol:
        return "this run"
    apart = [*filter(None, [f"{about.part} alone" if about.part else ""]), *about.departures]
    if about.grader and (said := f"{about.grader} grader") not in apart and about.known:
        apart.append(said)
    feedback = f"feedback: {about.teacher}" if about.teacher else ""
    return ", ".join(["this run", *filter(None, [*apart, feedback, incomplete_tasks(about.column, played.episodes)])])


def _episodes(played: Sequence[PolicyResult]) -> str:
    if not any(p.links for p in played):
        return _by_kind(played)
    parts = [
        "<h3>Every episode</h3>",
        '<p class="soft">A square is an episode: choose one to read it turn by turn.'
        '<br><span class="key ok"></span>solved<span class="key part"></span>partly'
        '<span class="key"></span>not solved<span class="key miss"></span>no score</p>',
    ]
    for p in played:
        ranked = sorted(zip(p.episodes, p.links, strict=True), key=lambda pair: pair[0].category)
        parts.append(f'<p class="soft">{inline(p.name)}</p>')
        parts.append(squares([e for e, _ in ranked], [link for _, link in ranked]))
    return "".join(parts)


def _by_kind(played: Sequence[PolicyResult]) -> str:
    """Where the episodes are too many to be shown: how many of each kind, and where these are listed."""
    kinds = list(dict.fromkeys(g.name for p in played for g in p.report.categories))
    of = {p.name: {g.name: g for g in p.report.categories} for p in played}
    rows = [[_listed(played, kind), *(g.n if (g := of[p.name].get(kind)) else None for p in played)] for kind in kinds]
    return "<h3>Every episode</h3>" + table(["kind of task", *(p.name for p in played)], rows, kind=MANY)


def _listed(played: Sequence[PolicyResult], kind: str) -> Safe:
    query = urlencode({"benchmark": played[0].report.benchmark, "kind": printable(kind)}, errors="replace")
    return Safe(f'<a href="{EPISODE_LIST}#{inline(query)}">{inline(kind)}</a>')
