"""The two pages: one ledger (``render_run``), and a whole chain from corpus to agents (``render_report``).

Each page stands alone and has its numbers beside it as JSON and CSV. Knows which sections there are and in which
order; what a section says is in its own file.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.report.escape import inline, slug
from lemur_ray.report.inputs import Inputs, ReportError, TrainingRun, collect_inputs, read_settings
from lemur_ray.report.ledgers.stored_episodes import stored_episodes
from lemur_ray.report.merged_runs import join_parts
from lemur_ray.report.pages import agents_section, paper_section, training_section
from lemur_ray.report.pages.caveats import limits
from lemur_ray.report.pages.episode_list import write_all
from lemur_ray.report.pages.markup import MANY, cell, page, percent, table, tiles, warning
from lemur_ray.report.pages.retries_section import retries_json, retries_section
from lemur_ray.report.pages.transcript_pages import EPISODE_LIST
from lemur_ray.report.paper_rows import PaperRun
from lemur_ray.report.policy_results import (
    PolicyResult,
    comparisons,
    display_name,
    order,
    policy_result,
    split_newest_versions,
)
from lemur_ray.report.run_metadata import RunMetadata
from lemur_ray.report.tables import Group, Report, by_run, to_csv
from lemur_ray.rollout.evaluation_folder import replace_file


def render_run(
    out: Path,
    notes: Mapping[str, object] | None = None,
    made: tuple[str, str, str] | None = None,
    expected: int = 0,
) -> Report:
    """Write ``index.html``, ``report.json`` and ``episodes.csv`` beside the ``episodes.jsonl`` in ``out``.

    ``made``: (benchmark, policy, recipe) of the evaluation that was just made; the run that began last by default.
    Title, headline and ``notes`` (name -> value, for example the agreement of a replay) are of that one, and it is
    returned; the page shows every other run of the ledger too. ``expected``: episodes of an evaluation that goes on.
    Raises ReportError where there is no episode, or none of the evaluation.
    """
    ledger = out / "episodes.jsonl"
    episodes = stored_episodes(ledger) if ledger.is_file() else []
    if not episodes:
        raise ReportError(f"{ledger}: no episodes, so nothing to report (did the run find any task?)")
    grouped, kept = by_run(episodes), RunMetadata(read_settings(out))
    if made is not None:
        if made not in grouped:
            raise ReportError(f"{ledger}: no episode of {made[1]} on {made[0]} under settings {made[2]}")
        grouped[made] = grouped.pop(made)  # last: it is the newest, whenever its first episode was played
    everything = list(grouped.values())
    shown, passed = split_newest_versions(everything)
    runs = [everything[i] for i in shown]
    earlier = [policy_result(everything[i], kept.of(everything[i])) for i in passed]
    played = [policy_result(run, kept.of(run)) for run in runs]
    reports = [p.report for p in played]
    last = reports[-1]
    title = _title(runs[-1], kept)
    benchmarks = dict.fromkeys(r.benchmark for r in reports)
    groups = {name: order([p for p in played if p.report.benchmark == name]) for name in benchmarks}
    groups, talk = write_all(out, title, groups, earlier, may_inline=True)
    body = [
        f"<h1>{inline(title)}</h1>",
        f'<p class="lede">evaluation settings <code>{inline(last.recipe or "none")}</code>, {_today()}</p>',
        _all_episodes(len(episodes), f"{last.overall.n:,} of {expected:,} episodes so far" if expected else ""),
    ]
    body.append(_run_tiles(last))
    body.append(table(["", ""], list(notes.items()), kind=MANY) if notes else "")
    for benchmark, group in groups.items():
        body.append(_section(benchmark, group, earlier))
    body += [retries_section(run) for run in runs]
    body.append(f"<h3>What this does not show</h3>{warning(limits(played))}")
    body += [f"<h3>Transcripts</h3>{talk}" if talk else "", _footer(["report.json", "episodes.csv", "episodes.jsonl"])]
    numbers = {**last.headline(), "notes": dict(notes or {}), "runs": [r.to_json() for r in reports]}
    numbers["retries"] = [retries_json(run) for run in runs]
    numbers["earlier_versions"] = [p.report.to_json() for p in earlier]
    html = page(title, "".join(body), live=bool(expected), listed="" if talk else EPISODE_LIST)
    _write(out, html, numbers, {"episodes.csv": to_csv(reports)})
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

    ``runs``: run folders; ``episodes``: folders with an episodes.jsonl; ``corpus``: a corpus folder. What is missing
    is said on the page. Returns what report.json says. Raises ReportError where no episode is found.
    """
    found = collect_inputs(runs, episodes, corpus)
    out.mkdir(parents=True, exist_ok=True)
    everything = [run for _, episodes_of in found.ledgers for run in by_run(episodes_of).values()]
    joined, settings = join_parts(everything, found.settings, RunMetadata(found.settings).of)
    kept = RunMetadata(settings)
    shown, passed = split_newest_versions(joined)
    by_benchmark: dict[str, list[PolicyResult]] = {}
    for run in (joined[i] for i in shown):
        by_benchmark.setdefault(run[0].key.benchmark, []).append(policy_result(run, kept.of(run)))
    earlier = [policy_result(joined[i], kept.of(joined[i])) for i in passed]
    groups = {benchmark: order(played) for benchmark, played in sorted(by_benchmark.items())}
    groups, _ = write_all(out, title, groups, earlier)
    body = [
        f"<h1>{inline(title)}</h1>",
        '<p class="lede">Raw code and text became rows, rows a language model, the model a chat model, and the chat '
        "model played as an agent. Every number here comes from files of this run; every episode can be read.</p>",
        _navigation(found, groups),
        _report_tiles(found, groups),
        _all_episodes(found.num_episodes),
        warning(found.missing),
    ]
    for benchmark, played in groups.items():
        body.append(
            f'<h2 id="{slug(benchmark)}">Agents: {inline(benchmark)}</h2>{_section(benchmark, played, earlier)}'
        )
    every = [p for ps in groups.values() for p in ps]
    of_paper = [
        PaperRun(p.report.policy, p.episodes, p.about, display_name(p.report.policy, p.about.recorded)) for p in every
    ]
    if beside := paper_section.section(of_paper):
        body.append(f'<h2 id="paper">The paper\'s tables, with our rows</h2>{beside}')
    pretrain = next((run for run in found.runs if run.stage == "pretraining"), None)
    if found.corpus:
        section = training_section.corpus_section(found.corpus, found.corpus_place, pretrain)
        body.append(f'<h2 id="corpus">Corpus</h2>{section}')
    for trained in found.runs:
        heading = f"{trained.stage.capitalize()}: {trained.name}"
        body.append(f'<h2 id="run-{slug(trained.name)}">{inline(heading)}</h2>{training_section.run_section(trained)}')
    body.append(f'<h2 id="limits">What this page does not show</h2>{warning(limits(every))}')
    files = ["report.json", "episodes.csv", "losses.csv", "mixture.csv"]
    body.append(_footer(files))
    numbers = {**_numbers(found, groups), "earlier_versions": [p.report.to_json() for p in earlier]}
    tables = {
        "episodes.csv": to_csv(p.report for played in (*groups.values(), earlier) for p in played),
        "losses.csv": _losses_csv(found.runs),
        "mixture.csv": _mixture_csv(found.runs),
    }
    _write(out, page(title, "".join(body), listed=EPISODE_LIST), numbers, tables)
    return numbers


def _section(benchmark: str, played: Sequence[PolicyResult], earlier: Sequence[PolicyResult]) -> str:
    return agents_section.section(benchmark, played, [p for p in earlier if p.report.benchmark == benchmark])


def _title(run: Sequence[Episode], kept: RunMetadata) -> str:
    return f"{display_name(run[0].key.policy, kept.of(run).recorded)} on {run[0].key.benchmark}"


def _today() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def _write(out: Path, html: str, numbers: Mapping[str, Any], tables: Mapping[str, str]) -> None:
    """Numbers first, page last: a page that is there has its numbers beside it."""
    replace_file(out / "report.json", json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    for name, text in tables.items():
        replace_file(out / name, text)
    replace_file(out / "index.html", html)


def _all_episodes(number: int, so_far: str = "") -> str:
    said = f"All {number:,} episodes: filter, sort, search, tasks against runs"
    live = f"<b>The run goes on: {inline(so_far)}.</b> This page is written anew while it does. " if so_far else ""
    return f'<p>{live}<a href="{EPISODE_LIST}">{said}</a></p>'


def _footer(files: Sequence[str]) -> str:
    links = ", ".join(f'<a href="{name}">{name}</a>' for name in files)
    return f"<footer>The numbers of this page: {links}. Written by lemur-ray, {_today()}.</footer>"


def _navigation(found: Inputs, groups: Mapping[str, Sequence[PolicyResult]]) -> str:
    links = [(slug(b), b) for b in groups] + ([("corpus", "corpus")] if found.corpus else [])
    links += [(f"run-{slug(run.name)}", f"{run.stage}: {run.name}") for run in found.runs]
    links.append(("limits", "what this does not show"))
    inner = "".join(f'<a href="#{anchor}">{inline(text)}</a>' for anchor, text in links)
    return f"<nav>{inner}</nav>"


def _run_tiles(report: Report) -> str:
    overall = report.overall
    items = [
        (percent(overall.success.value), f"solved{_of(overall)}"),
        (f"{overall.scored} of {overall.n}", "episodes have a score"),
        (percent(overall.invalid_actions.value), f"invalid among {overall.invalid_actions.n:,} actions"),
    ]
    if overall.mean_turns_solved is not None:
        items.append((f"{overall.mean_turns_solved:.1f}", "turns in a solved episode (mean)"))
    return tiles(items)


def _of(group: Group) -> str:
    bounds = group.success.interval
    return f": {group.solved} of {group.scored}, 95 % interval {bounds.low * 100:.1f} to {bounds.high * 100:.1f}"


def _report_tiles(found: Inputs, groups: Mapping[str, Sequence[PolicyResult]]) -> str:
    items = []
    for benchmark, played in groups.items():
        overall = played[0].report.overall
        items.append((percent(overall.success.value), f"of {benchmark} solved by {played[0].name}{_of(overall)}"))
    for run in found.runs:
        for key, value in run.result.items():
            of_kind = key.startswith("heldout/") and key.endswith("/bits_per_byte")  # sources have a table of their own
            if run.stage == "pretraining" and of_kind and value is not None:
                items.append((f"{value:.3f}", f"bits per byte on held-out {key.split('/')[1]} after pretraining"))
    for run in found.runs:
        if (speed := training_section.speed(run)) is not None:
            items.append((f"{speed:,.0f}", f"tokens per second in {run.stage} ({cell(run.last('tokens'))} tokens)"))
    return tiles(items)


def _numbers(found: Inputs, groups: Mapping[str, Sequence[PolicyResult]]) -> dict[str, Any]:
    corpus = {key: value for key, value in found.corpus.items() if key not in ("heldout",)}
    compared = [
        {
            "benchmark": benchmark, "first": c.first.report.policy, "second": c.second.report.policy,
            "settings": [c.first.report.recipe, c.second.report.recipe], "settings_differ": c.apart,
            "n": d.n, "difference": d.difference, "low": d.interval.low, "high": d.interval.high,
            "only_first": d.only_a, "only_second": d.only_b, "p_value": d.p_value, "test": d.test,
            "p_value_holm": c.p_holm, "detectable_at_80_percent_power": d.detectable,
        }
        for benchmark, played in groups.items() for c in comparisons(played) for d in (c.difference,)
    ]  # fmt: skip
    return {
        "written": _today(),
        "corpus": {"folder": found.corpus_place or None, **corpus},
        "training": [training_section.run_summary(run) for run in found.runs],
        "agents": [p.report.to_json() for played in groups.values() for p in played],
        "comparisons": compared,
        "missing": found.missing,
        "limits": limits([p for played in groups.values() for p in played]),
    }


def _losses_csv(runs: Sequence[TrainingRun]) -> str:
    """Every logged series in long form: run, metric, step, value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run", "metric", "step", "value"])
    for run in runs:
        for metric, points in run.series("").items():
            if metric.startswith(("loss", "heldout", "tokens_per_s", "lr", "grad_norm")):
                writer.writerows([run.name, metric, int(step), value] for step, value in points)
    return out.getvalue()


def _mixture_csv(runs: Sequence[TrainingRun]) -> str:
    out = io.StringIO()
    columns = ["name", "kind", "rows", "asked_share", "built_share", "built_rows", "used_rows", "built_epochs"]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run", *columns])
    for run in runs:
        writer.writerows([run.name, *(source.get(c) for c in columns)] for source in run.mixture)
    return out.getvalue()
