"""Serve the report of evaluations while they run: python jobs/view.py FOLDER [FOLDER ...] [--port N].

Two folders, or a folder with two policies, are shown side by side."""

import _path

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from lemur_ray.config import parse
from lemur_ray.host.ports import unusable
from lemur_ray.report.inputs import ReportError
from lemur_ray.report.pages.live_server import live_server
from lemur_ray.rollout.evaluation_folder import EvaluationError, folders_to_follow
from lemur_ray.rollout.ledger import LedgerError


@dataclass(frozen=True)
class ViewJob:
    """Serve the report of results folders on a port; its pages follow the runs."""

    folders: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Folders with an episodes.jsonl, or of suites; relative to $LEMUR_HOME. A run may still be about to
    begin; what is in a bucket is downloaded once."""
    port: int = 8009
    """Port of the pages. 0: any free one."""
    host: str = "127.0.0.1"
    """Address to listen at. Everybody who reaches it may read the episodes."""


def main(argv: Sequence[str] | None = None) -> int:
    job = parse(ViewJob, argv, prog="view.py")
    try:
        folders = folders_to_follow(job.folders)
        if missing := [folder for folder in folders if not folder.is_dir()]:
            raise EvaluationError(f"{missing[0]}: no such folder; give one that jobs/agent_eval.py writes to")
        if reason := unusable(job.host, job.port):
            raise EvaluationError(f"{job.host} port {job.port}: {reason}; choose another with --port")
        with live_server(folders, job.host, job.port) as address:
            print(f"{address} until Ctrl-C", flush=True)
            threading.Event().wait()
    except (EvaluationError, ReportError, LedgerError, ImportError, OSError, ValueError) as error:
        return _path.fail("view", error)
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    _path.run(main)
