"""Page of a suite: progress, time and cost of each benchmark, and the paper's tables with rows for its runs.

Written before the first episode, as episodes end (``play.py``) and after every benchmark; each benchmark
also has a page in its subfolder."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lemur_ray.evaluation.suites.progress import PartSoFar, SuiteProgress
from lemur_ray.evaluation.suites.suite_preflight import PreparedPart
from lemur_ray.evaluation.suites.tables import Part
from lemur_ray.report.escape import inline
from lemur_ray.report.inputs import read_settings
from lemur_ray.report.ledgers.stored_episodes import stored_episodes
from lemur_ray.report.pages import paper_section
from lemur_ray.report.pages.markup import Safe, cut_text, page, percent, table, warning
from lemur_ray.report.paper import COLUMNS
from lemur_ray.report.paper_rows import PaperRun
from lemur_ray.report.policy_results import display_name
from lemur_ray.report.run_metadata import RunMetadata
from lemur_ray.report.tables import by_run, summarise
from lemur_ray.rollout.evaluation_folder import replace_file

NO_BENCHMARK = "no benchmark here has this column"


def write_suite(
    out: Path, name: str, parts: Sequence[PreparedPart], missing: Sequence[Part], progress: SuiteProgress
) -> dict[str, Any]:
    """Write ``index.html`` and ``report.json`` into ``out``; returns the numbers of ``report.json``. ``parts``:
    benchmarks that are played, ``missing``: columns that are not; ``progress``: for the remaining time."""
    runs = [_run(ready) for ready in parts]
    played = [
        _row_and_numbers(ready, run, so_far, progress.priced)
        for ready, run, so_far in zip(parts, runs, progress.parts, strict=True)
    ]
    numbers = [entry for _, entry in played]
    absent = [_absent(part) for part in missing]
    remaining = progress.to_come()
    report = {
        "suite": name,
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "benchmarks": numbers,
        "not_played": absent,
        **_sums(numbers, progress),
        "to_come": {"seconds": remaining.seconds, "cost": remaining.cost},
    }
    header = ["benchmark", "the paper's column", "episodes scored", "solved", "cut replies", "departures"]
    header += ["seconds", "cost"]
    beside = paper_section.section([run for run in runs if run])
    title = f"Suite {name}"
    body = [
        f"<h1>{inline(title)}</h1>",
        f'<p class="lede">{inline(_state(report))}</p>',
        table(header, [row for row, _ in played]),
        warning(absent),
        f"<h2>The paper's tables, with our rows</h2>{beside}" if beside else "",
        f'<footer>The numbers of this page: <a href="report.json">report.json</a>. Written by lemur-ray, '
        f"{report['written']}.</footer>",
    ]
    replace_file(out / "report.json", json.dumps(report, indent=1, allow_nan=False) + "\n")
    replace_file(out / "index.html", page(title, "".join(body)))
    return report


def _row_and_numbers(
    ready: PreparedPart, run: PaperRun | None, so_far: PartSoFar, priced: bool
) -> tuple[list[object], dict[str, Any]]:
    """The row of one benchmark in the page's table, and its numbers for ``report.json``."""
    departures = list(run.about.departures) if run else []
    overall = summarise(run.episodes).overall if run else None
    where = Safe(f'<a href="{inline(ready.part.folder)}/index.html">{inline(ready.part.shown)}</a>')
    row: list[object] = [
        where if run else ready.part.shown,
        ready.part.column,
        f"{so_far.scored:,} of {so_far.episodes:,}",
        percent(overall.success.value) if overall else None,
        cut_text(overall) if overall else None,
        "; ".join(departures) or ("none" if run else None),
        round(so_far.total_s) or None,
        f"{so_far.cost:.2f}" if priced else None,
    ]
    entry = {"benchmark": ready.config.benchmark, "column": ready.part.column, "taught": ready.part.taught}
    entry |= {"episodes": so_far.episodes, "left": so_far.left, "departures": departures}
    entry |= {"seconds": round(so_far.total_s, 3), "cost": so_far.cost if priced else None}
    entry["out"] = ready.part.folder  # beneath the suite's folder, wherever that is moved
    return row, {**({} if run is None else summarise(run.episodes).headline()), **entry}


def seconds_before(out: Path) -> dict[str, float]:
    """Seconds for which earlier runs of this suite played each benchmark, by its folder's name, from
    ``out``/report.json; empty if that is missing or lacks them."""
    try:
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
        return {Path(one["out"]).name: max(0.0, float(one["seconds"])) for one in report["benchmarks"]}
    except (OSError, KeyError, TypeError, ValueError):
        return {}


def _run(ready: PreparedPart) -> PaperRun | None:
    """The stored episodes of this evaluation (benchmark, policy, recipe) and their description; None without."""
    prepared = ready.prepared
    ledger = prepared.out / "episodes.jsonl"
    if not prepared.tasks or not ledger.is_file():
        return None
    key = (prepared.tasks[0].benchmark, prepared.policy.label, prepared.settings.hash)
    episodes = by_run(stored_episodes(ledger)).get(key)
    if not episodes:
        return None
    about = RunMetadata(read_settings(prepared.out)).about(episodes)
    return PaperRun(key[1], episodes, about, display_name(key[1], about.recorded))


def _absent(part: Part) -> str:
    if not part.benchmark:
        return f"{part.column} ({COLUMNS[part.column].table}): {NO_BENCHMARK}"
    return f"{part.column}: {part.shown} was left out by --without"


def _sums(numbers: Sequence[Mapping[str, Any]], progress: SuiteProgress) -> dict[str, Any]:
    """Sums over all benchmarks, with the keys of an evaluation's last line."""
    blames, cut = Counter[str](), Counter[str]()
    for one in numbers:
        blames.update(one.get("missing_by_blame", {}))
        cut.update({name: one["cut_replies"][name] for name in ("count", "n")} if "cut_replies" in one else {})
    return {
        **{name: sum(one.get(name, 0) for one in numbers) for name in ("n", "scored", "solved", "missing")},
        "missing_by_blame": blames,
        **({"cut_replies": {**cut, "share": cut["count"] / cut["n"]}} if cut["n"] else {}),
        "left": sum(part.left for part in progress.parts),
        "seconds": round(sum(part.total_s for part in progress.parts), 3),
        "cost": round(sum(part.cost for part in progress.parts), 6) if progress.priced else None,
    }


def _state(report: Mapping[str, Any]) -> str:
    remaining = report["to_come"]
    parts = [f"{report['scored']:,} episodes scored, {report['left']:,} to come"]
    parts += [f"{report['seconds']:.0f} s so far"]
    parts += [f"about {remaining['seconds']:.0f} s to come"] if remaining["seconds"] else []
    parts += [f"cost {report['cost']:.2f}"] if report["cost"] is not None else []
    parts += [f"about {remaining['cost']:.2f} to come"] if remaining["cost"] else []
    return f"{'; '.join(parts)}. The same command goes on. {report['written']}"
