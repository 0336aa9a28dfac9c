"""Sums over episodes: counts, rates with intervals, and missing scores by cause.

Every rate has its n and a Wilson interval, clustered by task where tasks were played several times. An unscored episode
(the policy was not the cause of its end) is counted by blame and left out of rates; a second rate counts it as failed.
Knows nothing of files, HTML or figures."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lemur_ray.agents.trajectory import Episode, Outcome, Step
from lemur_ray.report.escape import printable
from lemur_ray.report.statistics import (
    Interval,
    PairedDifference,
    bootstrap_mean,
    clustered_wilson,
    paired_by_task,
    paired_difference,
    stratified_mean,
    wilson,
)
from lemur_ray.report.strata import cluster_of, grouped, strata_of, units_of
from lemur_ray.rollout.progress import CutReplies


@dataclass(frozen=True)
class Rate:
    """``count`` of ``n`` with a 95 % interval. ``value`` is None if n is 0. ``clustered``: the interval if tasks were
    played several times (see ``rate_of``); None: Wilson's."""

    count: int
    n: int
    clustered: Interval | None = None
    by: str = "task"
    """Kind of the clusters."""

    @property
    def value(self) -> float | None:
        return self.count / self.n if self.n else None

    @property
    def interval(self) -> Interval:
        return self.clustered or wilson(self.count, self.n)

    def to_json(self) -> dict[str, Any]:
        kind = "wilson" if self.clustered is None else f"wilson, clustered by {self.by}"
        return {"count": self.count, "n": self.n, "value": self.value, **asdict(self.interval), "interval": kind}


def rate_of(episodes: Sequence[Episode], hit: Callable[[Episode], bool]) -> Rate:
    """The share of episodes for which ``hit`` is true; value None without episodes. Episodes of one task are not
    independent: if any task occurs twice, the interval is clustered by task; if tasks come in clusters (a database, a
    template, a subject), by these."""
    hits = [bool(hit(e)) for e in episodes]
    units, by = units_of(episodes)
    repeated = len(set(units)) < len(units)
    return Rate(sum(hits), len(hits), clustered_wilson(hits, units) if repeated else None, by)


def is_solved(episode: Episode) -> bool:
    return episode.outcome is Outcome.SOLVED


_RATES = ("success", "success_missing_failed", "retried", "invalid_actions")
"""Fields of ``Group`` that are rates."""


@dataclass(frozen=True)
class Group:
    """Sums over the episodes of one category, or of all ("all"). ``success`` is over scored episodes,
    ``success_missing_failed`` over all of them. ``mean_score`` is the mean over scored episodes,
    ``mean_score_missing_0`` over all with 0 for a missing one; both differ from the success rate if a benchmark gives
    partial scores. ``score_interval`` is a bootstrap over tasks."""

    name: str
    n: int
    tasks: int
    scored: int
    solved: int
    success: Rate
    success_missing_failed: Rate
    missing: Mapping[str, int]
    outcomes: Mapping[str, int]
    """Number of episodes by outcome, and (``missing``) of those without a score."""
    mean_score: float | None
    mean_score_missing_0: float | None
    score_interval: Interval | None
    retried: Rate
    invalid_actions: Rate
    """Share of turns whose action was invalid; ``retried``: of episodes that took several attempts."""
    mean_turns: float | None
    mean_turns_solved: float | None
    prompt_tokens: int
    completion_tokens: int
    wall_s: float
    """Seconds of all episodes together."""
    outside: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Calls of environments to other services, by service: calls, seconds, tokens; not part of the numbers above."""
    cut: Mapping[str, Any] = field(default_factory=dict)
    """Cut replies of all episodes (``CutReplies.to_json``), and their counts by turn and task; ``calls_in_text``, if
    any: number of replies with a tool call in their text although tools were offered natively."""

    @property
    def has_replies_of_a_model(self) -> bool:
        """Whether cut replies are worth showing: any was cut, or any reply has a token count."""
        return bool(self.cut.get("count") or self.completion_tokens)

    def to_json(self) -> dict[str, Any]:
        values = {**asdict(self), **{name: getattr(self, name).to_json() for name in _RATES}}
        if not self.outside:
            del values["outside"]
        return values


@dataclass(frozen=True)
class Report:
    """Numbers of one run, overall and by category. ``policy``: name in keys; ``recipe``: hash of the settings."""

    benchmark: str
    policy: str
    recipe: str
    overall: Group
    categories: tuple[Group, ...] = field(default=())
    macro: tuple[float, Interval] | None = None
    """Unweighted mean of the success rates of categories with a score; None if there is only one."""

    def headline(self) -> dict[str, Any]:
        """The values of the JSON line that ``jobs/agent_eval.py`` prints last."""
        overall, bounds = self.overall, self.overall.success.interval
        names = ("count", "n", "share", "kinds", "calls_in_text")
        cut = {name: overall.cut[name] for name in names if name in overall.cut}
        return {
            "benchmark": self.benchmark,
            "policy": self.policy,
            "n": overall.n,
            "scored": overall.scored,
            "solved": overall.solved,
            "success_rate": overall.success.value,
            "interval_95": [bounds.low, bounds.high],
            "missing": overall.n - overall.scored,
            "missing_by_blame": dict(overall.missing),
            **({"cut_replies": cut} if overall.has_replies_of_a_model else {}),
        }

    def to_json(self) -> dict[str, Any]:
        names = {"benchmark": self.benchmark, "policy": self.policy, "recipe": self.recipe}
        values: dict[str, Any] = {**names, "overall": self.overall.to_json()}
        values["categories"] = [g.to_json() for g in self.categories]
        if self.macro is not None:
            value, bounds = self.macro
            values["macro"] = {"value": value, **asdict(bounds), "interval": "stratified bootstrap"}
        return values


def summarise(episodes: Iterable[Episode]) -> Report:
    """Sum up the episodes of one run (benchmark, policy, recipe). Raises ValueError without episodes, for episodes of
    several runs, and if two have the same key."""
    everything = list(episodes)
    if not everything:
        raise ValueError("no episodes: an empty ledger has no rates (did the run find any task?)")
    repeated = [key for key, count in Counter(e.key for e in everything).items() if count > 1]
    if repeated:
        raise ValueError(f"{len(repeated)} keys occur more than once, first {repeated[0]}: expected one record per key")
    runs = sorted({(e.key.benchmark, e.key.policy, e.key.recipe) for e in everything})
    if len(runs) > 1:
        raise ValueError(f"episodes of {len(runs)} runs: {runs[:3]}; summarise them one by one (see by_run)")
    benchmark, policy, recipe = runs[0]
    kinds = grouped(everything, lambda e: e.category)
    groups = tuple(_group(name, kinds[name]) for name in sorted(kinds))
    strata = [*strata_of(everything).values()]
    macro = stratified_mean(strata) if len(strata) > 1 else None
    return Report(benchmark, policy, recipe, _group("all", everything), groups, macro)


def by_run(episodes: Iterable[Episode]) -> dict[tuple[str, str, str], list[Episode]]:
    """Episodes grouped by (benchmark, policy, recipe hash), in the order of first appearance."""
    return grouped(episodes, lambda e: (e.key.benchmark, e.key.policy, e.key.recipe))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _group(name: str, episodes: list[Episode]) -> Group:
    scored = [e for e in episodes if e.outcome.scored]
    solved = [e for e in scored if e.outcome is Outcome.SOLVED]
    scores = [float(e.score) for e in scored if e.score is not None]
    steps = [step for e in scored for step in e.trajectory.steps]
    every_step = [step for e in episodes for step in e.trajectory.steps]
    cut = CutReplies(episodes)
    return Group(
        name=name,
        n=len(episodes),
        tasks=len({e.key.task for e in episodes}),
        scored=len(scored),
        solved=len(solved),
        success=rate_of(scored, is_solved),
        success_missing_failed=rate_of(episodes, is_solved),
        missing=dict(sorted(Counter(e.blame.value for e in episodes if not e.outcome.scored).items())),
        outcomes=dict(sorted(Counter(e.outcome.value for e in episodes).items())),
        mean_score=_mean(scores),
        mean_score_missing_0=sum(scores) / len(episodes),
        score_interval=bootstrap_mean(scores, units_of(scored)[0]) if scores else None,
        retried=Rate(sum(e.attempts > 1 for e in episodes), len(episodes)),
        invalid_actions=Rate(sum(not step.valid for step in steps), len(steps)),
        mean_turns=_mean([float(len(e.trajectory.steps)) for e in scored]),
        mean_turns_solved=_mean([float(len(e.trajectory.steps)) for e in solved]),
        prompt_tokens=sum(step.prompt_tokens for step in every_step),
        completion_tokens=sum(step.completion_tokens for step in every_step),
        wall_s=sum(e.wall_s for e in episodes),
        outside=_external_calls(every_step),
        cut={
            **cut.to_json(),
            "by_turn": dict(sorted(cut.turns.items())),
            "by_task": dict(sorted(cut.tasks.items())),
            **({"calls_in_text": cut.calls_in_text} if cut.calls_in_text else {}),
        },
    )


def _external_calls(steps: Iterable[Step]) -> dict[str, dict[str, float]]:
    services: dict[str, dict[str, float]] = {}
    for step in steps:
        for name, counts in step.outside.items():
            sums = services.setdefault(name, {})
            for what, number in counts.items():
                sums[what] = round(sums.get(what, 0) + number, 4)
    return {name: dict(sorted(sums.items())) for name, sums in sorted(services.items())}


def compare(a: Sequence[Episode], b: Sequence[Episode]) -> PairedDifference | None:
    """Compare two policies on the tasks that both were scored on; None without such a task. If a task was played
    several times, its episodes are one observation: the share of them that was solved. If tasks come in clusters, whole
    clusters are compared."""
    left, right = _solved_by_task(a), _solved_by_task(b)
    common = sorted(left.keys() & right.keys())
    if not common:
        return None
    known = {e.key.task: cluster_of(e) for e in sorted((*a, *b), key=lambda e: bool(e.cluster))}
    labels = [known[task] for task in common]
    clustered = len(set(labels)) not in (1, len(labels))
    if not clustered and all(len(side[task]) == 1 for side in (left, right) for task in common):
        return paired_difference([left[task][0] for task in common], [right[task][0] for task in common])
    shares = [[sum(side[task]) / len(side[task]) for task in common] for side in (left, right)]
    return paired_by_task([x - y for x, y in zip(*shares, strict=True)], labels if clustered else None)


def _solved_by_task(episodes: Iterable[Episode]) -> dict[str, list[bool]]:
    by_task = grouped((e for e in episodes if e.outcome.scored), lambda e: e.key.task)
    return {task: [*map(is_solved, played)] for task, played in by_task.items()}


def to_csv(reports: Iterable[Report]) -> str:
    """CSV text: a header, one line per report and category ("all" first); an absent value is an empty cell."""
    plain = ["mean_score", "mean_score_missing_0", "mean_turns", "mean_turns_solved"]
    plain += ["prompt_tokens", "completion_tokens", "wall_s"]
    header = ["benchmark", "policy", "recipe", "category", "n", "tasks", "scored", "solved", "missing"]
    header += [f"{rate}{part}" for rate in _RATES for part in ("", "_n", "_low", "_high")] + plain
    rows: list[list[object]] = []
    for report in reports:
        for group in (report.overall, *report.categories):
            missing = " ".join(f"{blame}:{count}" for blame, count in group.missing.items())
            row: list[object] = [printable(s) for s in (report.benchmark, report.policy, report.recipe, group.name)]
            row += [group.n, group.tasks, group.scored, group.solved, missing]
            for name in _RATES:
                rate: Rate = getattr(group, name)
                row += [rate.value, rate.n, rate.interval.low, rate.interval.high]
            rows.append(row + [getattr(group, name) for name in plain])
    return csv_text(header, rows)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV text, header first."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()
