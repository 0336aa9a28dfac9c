"""Replay every recorded run under --data, and write one table of how far the replays agree with it; resumes."""

import _path

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lemur_ray.evaluation.evaluate import evaluate
from lemur_ray.agents.replay_goals import RecordedRun
from lemur_ray.benchmarks.recorded_runs import goals, recorded_runs
from lemur_ray.config import parse
from lemur_ray.host.home import resolve_out
from lemur_ray.report.fidelity import FidelityConfig, fidelity
from lemur_ray.report.pages.fidelity_page import summary, write_fidelity
from lemur_ray.rollout.benchmark_tasks import option_names, parse_evaluation
from lemur_ray.rollout.evaluation_folder import EvaluationError, with_local_folder, prepare_out
from lemur_ray.rollout.exit_codes import job_exit


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code. 0: every goal with a replayed run is reached. 1: a goal is missed or a run failed. 130: stopped. argv:
    words of the command line, by default those of this process."""
    config = parse(FidelityConfig, argv)
    with job_exit("fidelity") as end:
        found = with_local_folder(config.out, lambda out: _replayed(config, prepare_out(resolve_out(out, "fidelity"))))
        print(summary(found), file=sys.stderr)
        print(json.dumps({"goals": found["goals"], "runs": len(found["runs"]), "page": f"{found['out']}/index.html"}))
        end.code = int(any("error" in row or row.get("reached") is False for row in found["goals"] + found["runs"]))
    return end.code


def _replayed(config: FidelityConfig, out: Path) -> dict[str, Any]:
    """Replay every run, and write the table of all so far after each. Returns the table as JSON values."""
    results: list[tuple[RecordedRun, dict[str, Any]]] = []
    every = recorded_runs(config.folder, strict=config.strict)
    for run in (run for run in every if config.only in run.name):
        results.append((run, _played(run, config, out)))
        write_fidelity(found := fidelity(results, goals(), config.under, whole_runs=not config.limit), out)
    if not results:
        raise ValueError(f"{config.folder}: no recorded run in it with {config.only!r} in its name")
    return {**found, "out": str(out)}


def _played(run: RecordedRun, config: FidelityConfig, out: Path) -> dict[str, Any]:
    """The numbers of one replayed run, or {"error": reason} if it cannot be played."""
    own = config.arguments(option_names(run.benchmark))
    arguments = [*run.arguments(), "--out", str(out / run.folder), *own]
    try:
        return evaluate(parse_evaluation(arguments, run.benchmark))
    except (EvaluationError, ValueError, OSError) as error:
        print(f"fidelity: {run.name}: {error}", file=sys.stderr, flush=True)
        return {"error": str(error)}


if __name__ == "__main__":
    _path.run(main)
