"""The pages of a report: one ledger (``render_run``), or a whole chain from corpus to agents (``render_report``).

Each page stands alone; the same numbers are in JSON and CSV files next to it. Knows the sections and their order, not
their content."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lemur_ray.report.escape import slug
from lemur_ray.report.inputs import Inputs, ReportError, Stage, TrainingRun, collect_inputs, read_settings
from lemur_ray.report.ledgers.stored_episodes import stored_episodes
from lemur_ray.report.pages import agents_section, paper_section, training_section
from lemur_ray.report.pages.caveats import limits
from lemur_ray.report.pages.episode_list import write_all
from lemur_ray.report.pages.markup import MANY, Page, cell, cut_text, percent, table, tiles, warning
from lemur_ray.report.pages.rendering import render
from lemur_ray.report.pages.retries_section import retries_json, retries_section
from lemur_ray.report.pages.transcript_pages import EPISODE_LIST
from lemur_ray.report.paper_rows import PaperRun
from lemur_ray.report.policy_results import (
    PolicyResult,
    comparisons,
    display_name,
    policy_result,
    solved_without_skill,
    split_newest_versions,
    with_distinct_names,
)
from lemur_ray.report.run_metadata import RunMetadata, join_parts
from lemur_ray.report.tables import Group, Report, by_run, csv_text, to_csv
from lemur_ray.rollout.evaluation_folder import replace_file

Groups = Mapping[str, Sequence[PolicyResult]]
"""Benchmark -> results of its policies, in the order of the page."""


def render_run(
    out: Path,
    notes: Mapping[str, object] | None = None,
    evaluation: tuple[str, str, str] | None = None,
    expected: int = 0,
) -> Report:
    """Write the pages of the ledger ``out/episodes.jsonl`` into ``out`` and return the report of one evaluation.
    Written are ``index.html``, ``report.json``, ``episodes.csv``, the list of episodes and ``transcripts/``; they show
    every run of the ledger. ``evaluation``: (benchmark, policy, hash of the settings) of the run for title, headline
    and ``notes`` (name -> value); by default the run that began last. ``expected``: number of episodes of an evaluation
    that is still running, which marks the page as live. Raises ReportError if it has no episode, LedgerError."""
    ledger = out / "episodes.jsonl"
    episodes = stored_episodes(ledger) if ledger.is_file() else []
    if not episodes:
        raise ReportError(f"{ledger}: no episodes, so nothing to report (did the run find any task?)")
    grouped, metadata = by_run(episodes), RunMetadata(read_settings(out))
    if evaluation is not None:
        if evaluation not in grouped:
            raise ReportError(
                f"{ledger}: no episode of {evaluation[1]} on {evaluation[0]} under settings {evaluation[2]}"
            )
        grouped[evaluation] = grouped.pop(evaluation)  # last: it is the newest, whenever its first episode was played
    newest, earlier = split_newest_versions(list(grouped.values()))
    results = [policy_result(run, metadata.about(run)) for run in newest]
    old = [policy_result(run, metadata.about(run)) for run in earlier]
    last = results[-1].report
    title = f"{display_name(last.policy, results[-1].about.recorded)} on {last.benchmark}"
    groups: Groups = {
        name: with_distinct_names([r for r in results if r.report.benchmark == name])
        for name in dict.fromkeys(r.report.benchmark for r in results)
    }
    groups, transcripts = write_all(out, title, groups, old, may_inline=True)
    html = render(
        "run",
        page=Page(title, "" if transcripts else EPISODE_LIST, live=bool(expected)),
        recipe=last.recipe,
        written=_now(),
        num_episodes=len(episodes),
        progress=f"{last.overall.n:,} of {expected:,} episodes so far" if expected else "",
        tiles=_run_tiles(last.overall),
        notes=table(["", ""], list(notes.items()), kind=MANY) if notes else "",
        sections=[*_sections(groups, old).values(), *map(retries_section, newest)],
        limits=warning(limits(results)),
        transcripts=transcripts,
    )
    numbers = {**last.headline(), "notes": dict(notes or {}), "runs": [r.to_json() for r in results]}
    numbers["solved_without_skill"] = {name: solved_without_skill(of) for name, of in groups.items()}
    numbers["retries"] = [retries_json(run) for run in newest]
    numbers["earlier_versions"] = [r.report.to_json() for r in old]
    _write(out, html, numbers, {"episodes.csv": to_csv(r.report for r in results)})
    return last


def render_report(
    out: Path,
    *,
    runs: Sequence[Path],
    episodes: Sequence[Path],
    corpus: Path | None,
    title: str = "From code and text to a scored agent",
) -> dict[str, Any]:
    """Write the whole page into ``out``: index.html, report.json, episodes.csv, losses.csv, mixture.csv, transcripts.
    ``runs``: run folders; ``episodes``: folders with an episodes.jsonl; ``corpus``: a corpus folder. The page lists
    missing inputs, those of training only if runs or a corpus are given. Returns the content of report.json:
    ``missing`` lists all, ``missing_requested`` those of the page. Raises ReportError without any episode."""
    inputs, of_training = collect_inputs(runs, episodes, corpus), bool(runs or corpus)
    missing = inputs.missing if of_training else inputs.missing_ledgers
    out.mkdir(parents=True, exist_ok=True)
    groups, earlier = _results(inputs)
    groups, _ = write_all(out, title, groups, earlier)
    results = [r for group in groups.values() for r in group]
    named = [(r.report.policy, r.episodes, r.about, display_name(r.report.policy, r.about.recorded)) for r in results]
    tables = {
        "episodes.csv": to_csv(r.report for r in (*results, *earlier)),
        "losses.csv": _losses_csv(inputs.runs),
        "mixture.csv": _mixture_csv(inputs.runs),
    }
    html = render(
        "report",
        page=Page(title, EPISODE_LIST),
        navigation=_navigation(inputs, groups),
        tiles=_report_tiles(inputs, groups),
        num_episodes=inputs.num_episodes,
        of_training=of_training,
        missing=warning(missing),
        benchmarks=_sections(groups, earlier),
        paper=paper_section.section([PaperRun(*one) for one in named]),
        corpus=_corpus_section(inputs),
        training=[(run, training_section.run_section(run)) for run in inputs.runs],
        limits=warning(limits(results)),
        files=["report.json", *tables],
        written=_now(),
    )
    numbers = {**_numbers(inputs, groups), "earlier_versions": [r.report.to_json() for r in earlier]}
    numbers["missing_requested"] = missing
    _write(out, html, numbers, tables)
    return numbers


def _results(inputs: Inputs) -> tuple[Groups, list[PolicyResult]]:
    """Results of each policy's newest version by benchmark, and those of earlier versions."""
    everything = [run for _, episodes in inputs.ledgers for run in by_run(episodes).values()]
    joined, settings = join_parts(everything, inputs.settings, RunMetadata(inputs.settings).about)
    metadata = RunMetadata(settings)
    newest, earlier = split_newest_versions(joined)
    by_benchmark: dict[str, list[PolicyResult]] = {}
    for run in newest:
        by_benchmark.setdefault(run[0].key.benchmark, []).append(policy_result(run, metadata.about(run)))
    groups = {benchmark: with_distinct_names(results) for benchmark, results in sorted(by_benchmark.items())}
    return groups, [policy_result(run, metadata.about(run)) for run in earlier]


def _sections(groups: Groups, earlier: Sequence[PolicyResult]) -> dict[str, Markup]:
    return {
        benchmark: agents_section.section(benchmark, results, [r for r in earlier if r.report.benchmark == benchmark])
        for benchmark, results in groups.items()
    }


def _corpus_section(inputs: Inputs) -> Markup | None:
    if not inputs.corpus:
        return None
    pretraining = next((run for run in inputs.runs if run.stage is Stage.PRETRAINING), None)
    return training_section.corpus_section(inputs.corpus, inputs.corpus_place, pretraining)


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def _write(out: Path, html: str, numbers: Mapping[str, Any], tables: Mapping[str, str]) -> None:
    """Write the numbers first and the page last, so that no page is without its numbers."""
    replace_file(out / "report.json", json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    for name, text in tables.items():
        replace_file(out / name, text)
    replace_file(out / "index.html", html)


def _navigation(inputs: Inputs, groups: Groups) -> list[tuple[str, str]]:
    """Anchors of the page and their names."""
    links = [(slug(b), b) for b in groups] + ([("corpus", "corpus")] if inputs.corpus else [])
    links += [(f"run-{slug(run.name)}", f"{run.stage}: {run.name}") for run in inputs.runs]
    return [*links, ("limits", "what this does not show")]


def _run_tiles(overall: Group) -> Markup:
    items = [
        (percent(overall.success.value), f"solved{_counts(overall)}"),
        (f"{overall.scored} of {overall.n}", "episodes have a score"),
        (percent(overall.invalid_actions.value), f"invalid among {overall.invalid_actions.n:,} actions"),
    ]
    if overall.mean_turns_solved is not None:
        items.append((f"{overall.mean_turns_solved:.1f}", "turns in a solved episode (mean)"))
    return tiles(items)


def _counts(group: Group) -> str:
    bounds = group.success.interval
    cut = f", cut replies {cut_text(group)}" if group.has_replies_of_a_model else ""
    return f": {group.solved} of {group.scored}, 95 % interval {bounds.low * 100:.1f} to {bounds.high * 100:.1f}{cut}"


def _report_tiles(inputs: Inputs, groups: Groups) -> Markup:
    items = []
    for benchmark, results in groups.items():
        overall = results[0].report.overall
        items.append((percent(overall.success.value), f"of {benchmark} solved by {results[0].name}{_counts(overall)}"))
    for run in inputs.runs:
        for key, value in run.result.items():
            of_kind = key.startswith("heldout/") and key.endswith("/bits_per_byte")  # sources have a table of their own
            if run.stage is Stage.PRETRAINING and of_kind and value is not None:
                items.append((f"{value:.3f}", f"bits per byte on held-out {key.split('/')[1]} after pretraining"))
    for run in inputs.runs:
        if (speed := training_section.speed(run)) is not None:
            items.append((f"{speed:,.0f}", f"tokens per second in {run.stage} ({cell(run.last('tokens'))} tokens)"))
    return tiles(items)


def _numbers(inputs: Inputs, groups: Groups) -> dict[str, Any]:
    corpus = {key: value for key, value in inputs.corpus.items() if key != "heldout"}
    compared = [
        {
            "benchmark": benchmark, "first": c.first.report.policy, "second": c.second.report.policy,
            "settings": [c.first.report.recipe, c.second.report.recipe], "settings_differ": c.different_settings,
            "n": d.n, "difference": d.difference, "low": d.interval.low, "high": d.interval.high,
            "only_first": d.only_a, "only_second": d.only_b, "p_value": d.p_value, "test": d.test,
            "p_value_holm": c.p_holm, "detectable_at_80_percent_power": d.detectable,
        }
        for benchmark, results in groups.items() for c in comparisons(results) for d in (c.difference,)
    ]  # fmt: skip
    results = [r for group in groups.values() for r in group]
    return {
        "written": _now(),
        "corpus": {"folder": inputs.corpus_place or None, **corpus},
        "training": [training_section.run_summary(run) for run in inputs.runs],
        "agents": [r.to_json() for r in results],
        "solved_without_skill": {benchmark: solved_without_skill(of) for benchmark, of in groups.items()},
        "comparisons": compared,
        "missing": inputs.missing,
        "limits": limits(results),
    }


def _losses_csv(runs: Sequence[TrainingRun]) -> str:
    """Every logged series in long form: run, metric, step, value."""
    logged = ("loss", "heldout", "tokens_per_s", "lr", "grad_norm")
    series = ((run.name, name, points) for run in runs for name, points in run.series("").items())
    rows = ((run, name, int(step), v) for run, name, points in series if name.startswith(logged) for step, v in points)
    return csv_text(["run", "metric", "step", "value"], rows)


def _mixture_csv(runs: Sequence[TrainingRun]) -> str:
    columns = ["name", "kind", "rows", "asked_share", "built_share", "built_rows", "used_rows", "built_epochs"]
    return csv_text(
        ["run", *columns], ((run.name, *map(source.get, columns)) for run in runs for source in run.mixture)
    )
