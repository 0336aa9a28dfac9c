"""One page, corpus to agents: python jobs/report.py [--runs DIR ...] [--episodes DIR ...] [--corpus DIR] [--out DIR].

With nothing given, all that is under LEMUR_HOME. Prints the path of index.html, then one JSON line.
"""

import _path  # noqa: F401

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.config import parse
from lemur_ray.home import lemur_home, resolve_out
from lemur_ray.report.pages.whole_page import render_report
from lemur_ray.report.inputs import ReportError, discover
from lemur_ray.rollout.evaluation_folder import EvaluationError, prepare_out
from lemur_ray.rollout.ledger import LedgerError


@dataclass(frozen=True)
class ReportJob:
    """Render the report."""

    runs: tuple[str, ...] = ()
    """Run folders of pretraining and tuning. Empty: every run under LEMUR_HOME/runs."""
    episodes: tuple[str, ...] = ()
    """Folders with an episodes.jsonl. Empty: every one under LEMUR_HOME/episodes."""
    corpus: str = ""
    """Corpus folder. Empty: LEMUR_HOME/corpus/embedded."""
    out: str = ""
    """Folder of the page. Empty: LEMUR_HOME/report."""


def main(argv: Sequence[str] | None = None) -> int:
    job = parse(ReportJob, argv, prog="report.py")
    runs, episodes, corpus = discover(lemur_home())
    runs = [Path(resolve_out(run, "")) for run in job.runs] or runs
    episodes = [Path(resolve_out(folder, "")) for folder in job.episodes] or episodes
    out = Path(resolve_out(job.out, "report"))
    try:
        prepare_out(str(out))
        found = Path(resolve_out(job.corpus, "")) if job.corpus else corpus
        numbers = render_report(out, runs=runs, episodes=episodes, corpus=found)
    except (ReportError, LedgerError, EvaluationError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    for line in numbers["missing"]:
        print(f"missing: {line}")
    print(out / "index.html")
    who = ("benchmark", "policy")
    agents = [{key: run[key] for key in who} | run["overall"]["success"] for run in numbers["agents"]]
    print(json.dumps({"report": str(out / "index.html"), "agents": agents, "missing": numbers["missing"]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
