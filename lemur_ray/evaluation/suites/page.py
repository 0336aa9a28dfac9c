"""The page of a suite: its benchmarks with what they cost and still will, and the paper's tables with our rows.

Written before the first episode, as episodes come (``live.py``) and after every benchmark; each benchmark has its own
page beneath. Knows how nothing is played.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lemur_ray.evaluation.suites.progress import SuiteProgress
from lemur_ray.evaluation.suites.suite_preflight import Ready
from lemur_ray.evaluation.suites.tables import Part
from lemur_ray.report.escape import inline
from lemur_ray.report.inputs import read_settings
from lemur_ray.report.ledgers.stored_episodes import stored_episodes
from lemur_ray.report.pages import paper_section
from lemur_ray.report.pages.markup import Safe, page, percent, table, warning
from lemur_ray.report.paper import COLUMNS
from lemur_ray.report.paper_rows import PaperRun
from lemur_ray.report.policy_results import display_name
from lemur_ray.report.run_metadata import RunMetadata
from lemur_ray.report.tables import by_run, summarise
from lemur_ray.rollout.evaluation_folder import replace_file

NO_BENCHMARK = "no benchmark here has this column"


def write_suite(
    out: Path, name: str, parts: Sequence[Ready], missing: Sequence[Part], progress: SuiteProgress
) -> dict[str, Any]:
    """Write ``index.html`` and ``report.json`` into ``out``; the numbers of the latter."""
    runs = [_run(ready) for ready in parts]
    rows: list[list[object]] = []
    numbers: list[dict[str, Any]] = []
    for ready, run, so_far in zip(parts, runs, progress.parts, strict=True):
        departures = list(run.about.departures) if run else []
        overall = summarise(run.episodes).overall if run else None
        spent = f"{so_far.cost:.2f}" if progress.priced else None
        where = Safe(f'<a href="{inline(ready.part.folder)}/index.html">{inline(ready.part.shown)}</a>')
        rows.append(
            [
                where if run else ready.part.shown,
                ready.part.column,
                f"{so_far.scored:,} of {so_far.episodes:,}",
                percent(overall.success.value) if overall else None,
                "; ".join(departures) or ("none" if run else None),
                round(so_far.total_s) or None,
                spent,
            ]
        )
        told = {"benchmark": ready.config.benchmark, "column": ready.part.column, "taught": ready.part.taught}
        told |= {"episodes": so_far.episodes, "left": so_far.left, "departures": departures}
        told |= {"seconds": round(so_far.total_s, 3), "cost": so_far.cost if progress.priced else None}
        told["out"] = ready.part.folder  # beneath this one, wherever it is moved
        numbers.append({**({} if run is None else summarise(run.episodes).headline()), **told})
    absent = [_absent(part) for part in missing]
    come = progress.to_come()
    found = {
        "suite": name,
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "benchmarks": numbers,
        "not_played": absent,
        **_sums(numbers, progress),
        "to_come": {"seconds": come.seconds, "cost": come.cost},
    }
    header = ["benchmark", "the paper's column", "episodes scored", "solved", "departures", "seconds", "cost"]
    beside = paper_section.section([run for run in runs if run])
    title = f"Suite {name}"
    body = [
        f"<h1>{inline(title)}</h1>",
        f'<p class="lede">{inline(_state(found))}</p>',
        table(header, rows),
        warning(absent),
        f"<h2>The paper's tables, with our rows</h2>{beside}" if beside else "",
        f'<footer>The numbers of this page: <a href="report.json">report.json</a>. Written by lemur-ray, '
        f"{found['written']}.</footer>",
    ]
    replace_file(out / "report.json", json.dumps(found, indent=1, allow_nan=False) + "\n")
    replace_file(out / "index.html", page(title, "".join(body)))
    return found


def seconds_before(out: Path) -> dict[str, float]:
    """Folder of a benchmark -> seconds that earlier sessions of the suite in ``out`` played it for. Empty where its
    page was never written or says nothing of that."""
    try:
        found = json.loads((out / "report.json").read_text(encoding="utf-8"))
        return {Path(one["out"]).name: max(0.0, float(one["seconds"])) for one in found["benchmarks"]}
    except (OSError, KeyError, TypeError, ValueError):
        return {}


def _run(ready: Ready) -> PaperRun | None:
    """What is in the ledger of exactly this evaluation."""
    prepared = ready.prepared
    ledger = prepared.out / "episodes.jsonl"
    if not prepared.tasks or not ledger.is_file():
        return None
    key = (prepared.tasks[0].benchmark, prepared.policy.label, prepared.settings.hash)
    episodes = by_run(stored_episodes(ledger)).get(key)
    if not episodes:
        return None
    about = RunMetadata(read_settings(prepared.out)).of(episodes)
    return PaperRun(key[1], episodes, about, display_name(key[1], about.recorded))


def _absent(part: Part) -> str:
    if not part.benchmark:
        return f"{part.column} ({COLUMNS[part.column].table}): {NO_BENCHMARK}"
    return f"{part.column}: {part.shown} was left out by --without"


def _sums(numbers: Sequence[Mapping[str, Any]], progress: SuiteProgress) -> dict[str, Any]:
    """Over all benchmarks, as the last line of an evaluation has them."""
    blames: dict[str, int] = {}
    for one in numbers:
        for blame, count in one.get("missing_by_blame", {}).items():
            blames[blame] = blames.get(blame, 0) + count
    return {
        **{name: sum(one.get(name, 0) for one in numbers) for name in ("n", "scored", "solved", "missing")},
        "missing_by_blame": blames,
        "left": sum(part.left for part in progress.parts),
        "seconds": round(sum(part.total_s for part in progress.parts), 3),
        "cost": round(sum(part.cost for part in progress.parts), 6) if progress.priced else None,
    }


def _state(found: Mapping[str, Any]) -> str:
    come = found["to_come"]
    said = [f"{found['scored']:,} episodes scored, {found['left']:,} to come"]
    said += [f"{found['seconds']:.0f} s so far"]
    said += [f"about {come['seconds']:.0f} s to come"] if come["seconds"] else []
    said += [f"cost {found['cost']:.2f}"] if found["cost"] is not None else []
    said += [f"about {come['cost']:.2f} to come"] if come["cost"] else []
    return f"{'; '.join(said)}. The same command goes on. {found['written']}"
