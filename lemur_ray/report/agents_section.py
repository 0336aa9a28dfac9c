"""The part of a page about agents: success by category, paired comparisons, what is missing, every episode.

Knows tables and figures; nothing of training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.report import figures
from lemur_ray.report.escape import inline
from lemur_ray.report.figures import Mark
from lemur_ray.report.markup import Safe, percent, rate_text, table, warning
from lemur_ray.report.paper import published
from lemur_ray.report.statistics import PairedDifference
from lemur_ray.report.tables import Group, Report, compare, summarise
from lemur_ray.report.transcripts import squares

_BASELINES = {"random": "random action", "expert": "expert"}
"""Policies without a model, by their name in keys (agents/scripted.py)."""

LIMITS: Mapping[str, Sequence[str]] = {
    "alfworld/text": (
        "The games are generated and smaller than ALFWorld's own (about 13 receptacles against 25, 12 objects against "
        "more than 40). These rates are not ALFWorld scores.",
        "Held out means that no (task type, object, target) triple was seen in training. Every goal object has been "
        "the goal of some training game: games with an object that was never a goal in training are not in these "
        "numbers, and nothing here shows that the model could solve one.",
        "The model imitates an expert on games of the same generator. It shows that the chain works end to end, not "
        "that a model of this size has general skill.",
    ),
    "intercode/sql": (
        "The questions are asked of a small sample database made from this machine's own software, not of Spider's 20 "
        "databases, unless the run was given other data.",
        "The environment shows the reward after every query (as the paper's protocol does): the policy may use it.",
    ),
}
GENERAL_LIMITS = (
    "Intervals are 95 % Wilson intervals over tasks. They do not cover the choice of the training seed: another run of "
    "the same recipe can lie outside.",
)


@dataclass(frozen=True)
class Played:
    """One policy on one benchmark: its episodes, the sums over them, and where each can be read."""

    report: Report
    episodes: Sequence[Episode]
    links: Sequence[str] = ()
    name: str = ""

    @property
    def is_baseline(self) -> bool:
        return is_baseline(self.report.policy)


def is_baseline(policy: str) -> bool:
    """Whether the policy is there to compare with: random actions, the expert, an untrained model."""
    return policy in _BASELINES or _untrained(policy)


def _untrained(policy: str) -> bool:
    served = policy.removeprefix("openai:").removeprefix("handle:")
    return "untrained" in policy or served.startswith(("random:", "random-"))


def display_name(policy: str) -> str:
    """How a policy is called on the page: ``openai:nano-chat@1500-3f9a01bc`` is ``nano-chat, step 1500``."""
    if _untrained(policy):
        return "untrained model"
    name, _, version = policy.removeprefix("openai:").partition("@")
    if checkpoint := re.fullmatch(r"(\d+)-[0-9a-f]{8}", version):
        return f"{name}, step {checkpoint[1]}"
    return _BASELINES.get(policy, f"{name}, version {version}" if version else name)


def newest_versions(runs: Sequence[Sequence[Episode]]) -> tuple[list[int], list[int]]:
    """Places of the runs of each policy's newest version on its benchmark, and places of all runs of earlier ones.

    ``runs`` go from the oldest to the newest; a policy is what stands before the ``@`` of its name.
    """
    keys = [run[0].key for run in runs]
    newest = {(key.benchmark, key.policy.partition("@")[0]): key.policy for key in keys}
    shown = [newest[key.benchmark, key.policy.partition("@")[0]] == key.policy for key in keys]
    return [i for i, is_new in enumerate(shown) if is_new], [i for i, is_new in enumerate(shown) if not is_new]


def order(played: Sequence[Played]) -> list[Played]:
    """Models first, then untrained model, random action, expert; names made distinct by the recipe's hash."""
    names = [display_name(p.report.policy) for p in played]
    named = [
        Played(p.report, p.episodes, p.links, n if names.count(n) == 1 else f"{n} {p.report.recipe[:6]}".strip())
        for p, n in zip(played, names, strict=True)
    ]
    last = ("untrained model", "random action", "expert")
    return sorted(named, key=lambda p: (p.is_baseline, last.index(p.name) if p.name in last else -1, p.name))


def comparisons(played: Sequence[Played]) -> list[tuple[Played, Played, PairedDifference]]:
    """The first policy against each other one, on the tasks that both were scored on."""
    out = []
    for other in played[1:]:
        difference = compare(played[0].episodes, other.episodes)
        if difference is not None:
            out.append((played[0], other, difference))
    return out


def section(benchmark: str, played: Sequence[Played], earlier: Sequence[Played] = ()) -> str:
    """Everything about one benchmark; ``played`` as ``order`` gives it, ``earlier``: versions left out."""
    parts = [_missing(played), _success_figure(benchmark, played), _numbers(played)]
    parts += [_differences(played), _by_turn(played), _published(benchmark, played), _episodes(played)]
    parts.append(_earlier(earlier))
    return "".join(parts)


def limits(benchmarks: Sequence[str]) -> list[str]:
    """What the page does not show, for these benchmarks."""
    return [*(line for b in benchmarks for line in LIMITS.get(b, ())), *GENERAL_LIMITS]


def _missing(played: Sequence[Played]) -> str:
    lines = []
    for p in played:
        overall = p.report.overall
        if overall.missing:
            by = ", ".join(f"{count} by {blame}" for blame, count in overall.missing.items())
            lines.append(
                f"{p.name}: {overall.n - overall.scored} of {overall.n} episodes have no score ({by}). They are left "
                f"out of the rates; counted as failed, the success rate would be "
                f"{rate_text(overall.success_missing_failed)}."
            )
        early = sum(e.outcome is Outcome.CONTEXT_OVERFLOW and len(e.trajectory.steps) <= 1 for e in p.episodes)
        if early:
            lines.append(
                f"{p.name}: {early} of {overall.n} episodes did not fit the model's context after at most one turn. "
                "They count as failed, but say nothing of its skill: the prompt is too long for it."
            )
    return warning(lines)


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
    rows = [
        [
            f"{a.name} against {b.name}",
            d.n,
            Safe(f"{d.difference * 100:+.1f} [{d.interval.low * 100:+.1f}, {d.interval.high * 100:+.1f}]"),
            d.only_a,
            d.only_b,
            Safe(f"{d.p_value:.2g}" if d.p_value >= 1e-4 else "&lt; 0.0001"),
        ]
        for a, b, d in comparisons(played)
    ]
    if not rows:
        return ""
    header = [
        "on the same tasks",
        "n",
        "difference in points [95 %]",
        "only the first",
        "only the second",
        "p (McNemar)",
    ]
    return table(header, rows)


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
    drawn = figures.curves(series, x_label="turn", y_label="solved, %", window=1, digits=1, colours=colours)
    return f"<h3>Solved within so many turns</h3>{drawn}"


def _published(benchmark: str, played: Sequence[Played]) -> str:
    found = published(benchmark)
    if found is None:
        return ""
    column, same_protocol = found
    rows = [
        [p.name, Safe(inline(rate_text(p.report.overall.success))), "this run"] for p in played if not p.is_baseline
    ]
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


def played(episodes: Sequence[Episode], links: Sequence[str] = ()) -> Played:
    """The episodes of one run (see ``tables.by_run``) with their sums."""
    return Played(summarise(episodes), episodes, links)
