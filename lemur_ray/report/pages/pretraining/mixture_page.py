"""The page of a mixture study: held-out bits per byte and loss of code and of text against the ratio trained on.

Reads ``study.json`` and the run folders next to it; writes the numbers as JSON and CSV too. Runs no trial."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lemur_ray.report.inputs import ReportError, read_run
from lemur_ray.report.pages import figures
from lemur_ray.report.pages.markup import DASH, Page, numeric, table, warning
from lemur_ray.report.pages.pretraining.mixture_figure import Point, ratio_chart, standalone
from lemur_ray.report.pages.rendering import render
from lemur_ray.report.statistics import t_interval
from lemur_ray.report.tables import csv_text

KINDS = ("code", "text")
METRICS = {"bits_per_byte": "bits per byte", "loss": "loss, nats per token"}
PAPER = (
    "The paper (appendix A.1.2) trained Llama models further on a set of code : text ratios and found 10 : 1 an "
    "efficient ratio to go from text to a balance of text and code. It shows no numbers of that study, calls it a "
    "rough estimate under limits of compute, and expects that other models need other ratios and numbers of steps; "
    "smaller models, it says, forget natural language more."
)
LIMITS = (
    "Held-out rows are of the same sources as the training rows: this measures how well each kind is modelled, not "
    "what a model can do with it.",
    "A small model and few tokens, by default from random parameters where the paper went on from Llama: which ratio "
    "is best here says nothing about which is best at 70B parameters and 90B tokens.",
)


@dataclass(frozen=True)
class Measured:
    """Measurements of the finished trials of one ratio of code to text."""

    ratio: str
    code_share: float
    values: Mapping[str, Sequence[float]]
    """``<kind>/<metric>`` -> one value for each seed."""
    epochs: Mapping[str, float]
    """Passes over the rows of a kind, of the source that was repeated most."""


def render_study(out: Path) -> dict[str, Any]:
    """Write ``index.html``, ``study_results.json`` and ``study_results.csv`` into a study's folder; returns the JSON.
    Raises ReportError if there is no study, or none of its trials has finished."""
    try:
        study = json.loads((out / "study.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReportError(f"{out} holds no study.json: run jobs/mixture_study.py --out {out}") from None
    results, missing = {}, []
    for trial in study["trials"]:
        folder = out / trial["folder"]
        result = read_run(folder).result if (folder / "recipe.json").is_file() else {}
        if result:
            results[trial["folder"]] = result
        else:
            missing.append(f"trial {trial['folder']} has not finished: it is left out")
    if not results:
        raise ReportError(f"{out}: no trial has finished yet, so nothing can be drawn; run the same command again")
    rows = measure(study["trials"], results)
    numbers = {**study, "missing": missing, "results": [to_json(row) for row in rows]}
    charts = []
    for metric, label in METRICS.items():
        chart = ratio_chart({kind: points(rows, f"{kind}/{metric}") for kind in KINDS}, y_label=label)
        (out / f"{metric}.svg").write_text(standalone(chart), encoding="utf-8")
        charts.append((label, chart))
    html = render(
        "mixture",
        page=Page("Mixture study"),
        study=study,
        num_trials=len(results),
        paper=PAPER,
        legend=figures.legend([(kind, colour) for colour, kind in enumerate(KINDS)]),
        charts=charts,
        seeds=max(len(values) for row in rows for values in row.values.values()),
        table=_table(rows),
        limits=warning([*LIMITS, *missing]),
    )
    (out / "index.html").write_text(html, encoding="utf-8")
    (out / "study_results.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    (out / "study_results.csv").write_text(to_csv(rows), encoding="utf-8")
    return numbers


def measure(trials: Sequence[Mapping[str, Any]], results: Mapping[str, Mapping[str, Any]]) -> list[Measured]:
    """Measurements of the finished trials, one value for each ratio, from most text to most code. ``trials``: of
    study.json; ``results``: by the trial's folder. Ratios without a finished trial are left out."""
    out = []
    for ratio, share in sorted({(t["ratio"], t["code_share"]) for t in trials}, key=lambda pair: pair[1]):
        finished = [results[t["folder"]] for t in trials if t["ratio"] == ratio and t["folder"] in results]
        values = {
            f"{kind}/{metric}": [r[f"heldout/{kind}/{metric}"] for r in finished
                                 if r.get(f"heldout/{kind}/{metric}") is not None]
            for kind in KINDS for metric in METRICS
        }  # fmt: skip
        mixture = finished[0]["mixture"] if finished else []
        epochs = {k: max((s["built_epochs"] for s in mixture if s["kind"] == k), default=0.0) for k in KINDS}
        if finished:
            out.append(Measured(ratio, share, values, epochs))
    return out


def points(rows: Sequence[Measured], name: str) -> list[Point]:
    """Points of the curve ``name`` (KIND/METRIC, such as "code/loss"), with 95 % intervals over several seeds."""
    measured = [(row, values) for row in rows if (values := row.values[name])]
    return [Point(row.ratio, row.code_share, *t_interval(values), tuple(values)) for row, values in measured]


def to_json(row: Measured) -> dict[str, Any]:
    """One ratio as JSON: mean, interval (None for one seed) and values of each kind and metric."""
    out: dict[str, Any] = {"ratio": row.ratio, "code_share": row.code_share, "epochs": dict(row.epochs)}
    for name, values in row.values.items():
        if values:
            mean, low, high = t_interval(values)
            out[name] = {"mean": mean, "low": low, "high": high, "values": list(values)}
    return out


def to_csv(rows: Sequence[Measured]) -> str:
    """The measurements as CSV text, one line for each ratio, kind and metric: mean and interval over seeds."""
    lines = [
        [row.ratio, f"{row.code_share:.6f}", *name.split("/", 1), len(values), *t_interval(values)]
        for row in rows
        for name, values in row.values.items()
        if values
    ]
    return csv_text(["ratio", "code_share", "kind", "metric", "seeds", "mean", "low", "high"], lines)


def _mean_text(values: Sequence[float]) -> Markup:
    if not values:
        return numeric(DASH)
    mean, low, high = t_interval(values)
    return numeric(f"{mean:.3f}" + ("" if low is None or high is None else f" [{low:.3f}, {high:.3f}]"))


def _table(rows: Sequence[Measured]) -> Markup:
    header = ["code : text", "code share", "code, bits per byte", "text, bits per byte", "code, loss", "text, loss",
              "seeds", "epochs of code", "epochs of text"]  # fmt: skip
    body = [
        [row.ratio.replace(":", " : "), numeric(f"{row.code_share:.1%}"),
         *(_mean_text(row.values[f"{kind}/{metric}"]) for metric in METRICS for kind in KINDS),
         len(row.values["code/loss"]), *(numeric(f"{row.epochs[kind]:.3f}") for kind in KINDS)]
        for row in rows
    ]  # fmt: skip
    return table(header, body)
