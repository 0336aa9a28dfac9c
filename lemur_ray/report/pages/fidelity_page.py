"""The table of replayed runs as files: ``fidelity.json``, ``fidelity.md`` and ``index.html`` in one folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lemur_ray.report.pages.markup import DASH, page, table

_TITLE = "Recorded runs, played again"
_VERDICTS = {True: "reached", False: "MISSED", None: "no run"}
_GOALS = ("goal", "runs", "equal", "of", "share", "target", "")
_ALIKE = ("solved alike", "rewards alike", "cells alike")
_RUNS = ("run", "episodes", "missing", "solved then", "solved now", *_ALIKE, "differing")


def write_fidelity(result: Mapping[str, Any], out: Path) -> Path:
    """Write the result of ``fidelity.fidelity`` to the folder ``out`` as JSON, Markdown and page; returns its path."""
    (out / "fidelity.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    tables = [(_GOALS, _goal_rows(result)), (_RUNS, _run_rows(result))]
    (out / "fidelity.md").write_text("\n\n".join(_markdown(*each) for each in tables) + "\n", encoding="utf-8")
    body = Markup(f"<h1>{_TITLE}</h1>") + Markup("").join(table(header, rows) for header, rows in tables)
    (out / "index.html").write_text(page(_TITLE, body), encoding="utf-8")
    return out / "index.html"


def summary(result: Mapping[str, Any]) -> str:
    """The goals of a ``fidelity.fidelity`` result as a Markdown table, for a terminal."""
    return _markdown(_GOALS, _goal_rows(result))


def _goal_rows(result: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for goal in result["goals"]:
        counts = [str(goal[key]) for key in ("runs", "equal", "of")]
        partial = goal["reached"] is None and goal["runs"]
        verdict = "not asked of parts of runs (--limit)" if partial else _VERDICTS[goal["reached"]]
        rows.append([goal["goal"], *counts, _share(goal["share"]), _share(goal["target"]), verdict])
    return rows


def _run_rows(result: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for run in result["runs"]:
        if "error" in run:
            rows.append([run["run"], *[DASH] * (len(_RUNS) - 2), run["error"]])
            continue
        numbers = [str(run[key]) for key in ("episodes", "missing", "recorded_solved", "solved")]
        shares = [_share(run[key]) for key in ("agreement", "reward_agreement", "cells")]
        rows.append([run["run"], *numbers, *shares, ", ".join(run["differing"])])
    return rows


def _share(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.2f} %"


def _markdown(header: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(word.replace("|", "\\|") for word in line) + " |" for line in lines)
