"""The part of a page about agents: success by category, paired comparisons, what is missing, every episode.

Knows tables and figures; nothing of training.
"""

from __future__ import annotations

from collections.abc import Sequence

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.report.escape import inline
from lemur_ray.report.pages import figures
from lemur_ray.report.pages.caveats import LIMITS, SAMPLE_DATABASE, missing
from lemur_ray.report.pages.figures import Mark
from lemur_ray.report.pages.markup import Safe, percent, rate_text, table
from lemur_ray.report.pages.transcripts import squares
from lemur_ray.report.paper import COLUMNS, FIGURE_5_GPT_4, SQL_BY_TURN, published
from lemur_ray.report.policy_results import PairOfPolicies, Played, comparisons
from lemur_ray.report.protocol import as_played, departures, differences, grader_of, is_spider, tasks_short, teacher_of
from lemur_ray.report.tables import Group, Report


def section(benchmark: str, played: Sequence[Played], earlier: Sequence[Played] = ()) -> str:
    """Everything about one benchmark; ``played`` as ``order`` gives it, ``earlier``: versions left out."""
    parts = [missing(played), _success_figure(benchmark, played), _beside(benchmark, played), _numbers(played)]
    parts += [_differences(played), _by_turn(played), _published(benchmark, played), _episodes(played)]
    parts.append(_earlier(earlier))
    return "".join(parts)


def _beside(benchmark: str, played: Sequence[Played]) -> str:
    """What must be read beside a score: what costs nothing, what may be known by heart, what the paper has by kind."""
    said = [*LIMITS[benchmark]] if benchmark in ("intercode/bash", "intercode/ctf") else []
    if any(not is_spider(p.episodes) for p in played if benchmark == "intercode/sql"):
        said.append(SAMPLE_DATABASE)
    models = [p for p in played if not p.is_baseline]
    apart = differences([as_played(p.report.policy, p.settings) for p in models])
    if any(apart):
        each = "; ".join(f"{p.name}: {', '.join(words)}" for p, words in zip(models, apart, strict=True))
        said.append(f"These runs have other settings than one another. {each}.")
    lines = f'<p class="soft">{inline(" ".join(said))}</p>' if said else ""
    if benchmark != "intercode/ctf":
        return lines
    pairs = FIGURE_5_GPT_4.values()
    counts = [*pairs, (sum(hits for hits, _ in pairs), sum(n for _, n in pairs))]
    cells = [Safe(f"{100 * hits / n:.1f} % <span class='soft'>{hits}/{n}</span>") for hits, n in counts]
    note = (
        "The paper's Figure 5 beside these: gpt-4 by category, counted in its log of 93 tasks, the other 7 as failed."
    )
    shown = table(["published, of 100 tasks", *FIGURE_5_GPT_4, "all"], [["gpt-4, published", *cells]])
    return f'{lines}{shown}<p class="soft">{inline(note)}</p>'


def _success_figure(benchmark: str, played: Sequence[Played]) -> str:
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
    figure = " (the paper's Figure 5)" if benchmark == "intercode/ctf" else ""
    return f"<h3>Solved, by kind of task{figure}</h3>{key}{drawn}"


def _colours(played: Sequence[Played]) -> list[int | None]:
    """Models in colour, baselines in grey; where there is no model, every policy in colour."""
    if all(p.is_baseline for p in played):
        return list(range(len(played)))
    models = iter(range(len(played)))
    spare = {"untrained model": 4, "random action": None, "expert": 2}
    return [spare.get(p.name) if p.is_baseline else 5 if (i := next(models)) == 0 else i for p in played]


def _find(report: Report, name: str) -> Group | None:
    groups = {"all": report.overall} | {g.name: g for g in report.categories}
    return groups.get(name)


def _numbers(played: Sequence[Played]) -> str:
    header = ["policy", "episodes", "solved of scored [95 %]", "mean score", "invalid actions", "turns when solved"]
    header += ["retried", "tokens in / out"]
    rows = []
    for p in played:
        g = p.report.overall
        invalid = f"{percent(g.invalid_actions.value)} <span class='soft'>of {g.invalid_actions.n:,}</span>"
        rows.append(
            [
                p.name,
                g.n,
                Safe(inline(rate_text(g.success))),
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
    return table(header, rows, strong) + table(heads, ends, strong)


def _differences(played: Sequence[Played]) -> str:
    found = comparisons(played)
    if not found:
        return ""
    rows = [
        [
            Safe(inline(f"{c.first.name} against {c.second.name}") + _settings_differ(c)),
            d.n,
            Safe(f"{d.difference * 100:+.1f} [{d.interval.low * 100:+.1f}, {d.interval.high * 100:+.1f}]"),
            d.only_a,
            d.only_b,
            Safe(f"{d.p_value:.2g}" if d.p_value >= 1e-4 else "&lt; 0.0001"),
        ]
        for c in found
        for d in (c.difference,)
    ]
    tests = " or ".join(sorted({c.difference.test for c in found}))
    header = ["on the same tasks", "tasks", "difference in points [95 %]", "more by the first", "more by the second"]
    said = "Every pair is compared, so of twenty p-values one is below 0.05 by chance alone."
    if any(c.difference.test != "McNemar" for c in found):
        said += (
            " Where tasks were played several times, a task is one observation: the interval is a bootstrap over "
            "tasks, the p-value comes from flipping the signs of their differences, both from a seed."
        )
    return table([*header, f"p ({tests})"], rows) + f'<p class="soft">{said}</p>'


def _settings_differ(comparison: PairOfPolicies) -> str:
    if not comparison.apart:
        return ""
    return f'<br><span class="soft">other settings: {inline(comparison.apart)}</span>'


def _earlier(earlier: Sequence[Played]) -> str:
    if not earlier:
        return ""
    rows = [
        [p.report.policy, p.report.recipe[:6], p.report.overall.n, Safe(inline(rate_text(p.report.overall.success)))]
        for p in earlier
    ]
    return "<h3>Earlier versions of these policies, not shown above</h3>" + table(
        ["policy and version", "settings", "episodes", "solved of scored [95 %]"], rows
    )


def _by_turn(played: Sequence[Played]) -> str:
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
    if played[0].report.benchmark == "intercode/sql" and any(is_spider(p.episodes) for p in played):
        for name, shares in SQL_BY_TURN.items():
            series[name], colours[name] = [(t, share) for t, share in enumerate(shares, 1)], None
    drawn = figures.curves(series, x_label="turn", y_label="solved, %", window=1, digits=1, colours=colours)
    return f"<h3>Solved within so many turns</h3>{drawn}"


def _published(benchmark: str, played: Sequence[Played]) -> str:
    found = published(benchmark)
    if found is None:
        return ""
    column, same_protocol = found
    ours = [p for p in played if not p.is_baseline]
    if benchmark == "intercode/sql":
        ours = [p for p in ours if is_spider(p.episodes)]
        if not ours:
            return ""  # the sample database has nothing to stand beside
    rows = [[p.name, Safe(inline(rate_text(p.report.overall.success))), _where(p)] for p in ours]
    n = len(rows)
    rows += [
        [model, Safe(f"{value:.2f} %"), f"{column.table}, n = {column.n}"] for model, value in column.values.items()
    ]
    said = (
        f"{column.setting}. "
        + ("" if same_protocol else "Another protocol than here: actions from Python tool calls, few turns. ")
        + "These models have 34 to 70 billion parameters or more and other tasks; the rows are here for scale."
    )
    note = f" {column.note}" if column.note else ""
    return (
        f"<h3>Beside the paper's {inline(column.column)}</h3>"
        + table(["model", "solved", "where"], rows, frozenset(range(n)))
        + f'<p class="soft">{inline(said + note)}</p>'
    )


def _where(played: Played) -> str:
    """How a run of ours departs from the column it stands in."""
    benchmark = played.report.benchmark
    if benchmark not in COLUMNS:
        return "this run"
    apart = departures(played.report.policy, benchmark, played.settings)
    if benchmark.startswith("mint/") and (grader := grader_of(played.settings)) == "mint-2023":
        apart.append(f"{grader} grader")
    teacher = teacher_of(played.report.policy, played.settings)
    short = tasks_short(benchmark, played.episodes)
    more = [f"feedback: {teacher}" if teacher else "", short]
    return ", ".join(["this run", *filter(None, [*apart, *more])])


def _episodes(played: Sequence[Played]) -> str:
    if not any(p.links for p in played):
        return ""
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
