"""Write the report page: python jobs/report.py [--runs DIR ...] [--episodes DIR ...] [--corpus DIR] [--out DIR].

Without arguments, of everything under LEMUR_HOME; each DIR may be gs:// or s3://. Prints the page's path, then one
JSON line. --find TEXT searches the episodes instead, --eval FILE.eval|DIR writes logs that `inspect view` opens."""

import _path

import json
from collections.abc import Sequence
from pathlib import Path

from lemur_ray.config import parse
from lemur_ray.host.home import resolve_out
from lemur_ray.report.inputs import ReportError, ReportJob
from lemur_ray.report.ledgers.export_and_search import export_eval_logs, search_ledgers
from lemur_ray.report.pages.whole_page import render_report
from lemur_ray.rollout.evaluation_folder import EvaluationError, prepare_out
from lemur_ray.rollout.ledger import LedgerError
from lemur_ray.storage.published_folder import output_folder


def main(argv: Sequence[str] | None = None) -> int:
    job = parse(ReportJob, argv, prog="report.py")
    out = resolve_out(job.out, "report")
    try:
        runs, episodes, corpus = job.folders()
        if job.find or job.eval:
            lines = (
                search_ledgers(episodes, job.find)
                if job.find
                else export_eval_logs(episodes, Path(resolve_out(job.eval, "")))
            )
            for line in lines:
                print(line)
            return 0
        with output_folder(out, last="index.html") as folder:
            prepare_out(str(folder))
            numbers = render_report(folder, runs=runs, episodes=episodes, corpus=corpus)
    except (ReportError, LedgerError, EvaluationError, ImportError, OSError, ValueError) as error:
        return _path.fail("report", error)
    for line in numbers["missing_requested"]:
        print(f"missing: {line}")
    print(f"{out}/index.html")
    who = ("benchmark", "policy")
    agents = [{key: run[key] for key in who} | run["overall"]["success"] for run in numbers["agents"]]
    print(json.dumps({"report": f"{out}/index.html", "agents": agents, "missing": numbers["missing_requested"]}))
    return 0


if __name__ == "__main__":
    _path.run(main)
