"""Convert solved episodes to instruction data: filtered, without duplicates, each solved again when replayed.

    python jobs/agent_eval.py --split train --limit 500 --out episodes/train
    python jobs/export_sft.py --episodes episodes/train --out solved.jsonl
    python jobs/instruct.py --conversations solved.jsonl --demo --out runs/nano-chat-2

Writes one {dataset, id, messages} per line and, in ``<out>.json``, counts of the exported and omitted episodes."""

import _path

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro
from lemur_ray.config import parse
from lemur_ray.evaluation.solved_export import HowToExport, export
from lemur_ray.host.home import lemur_home, resolve_out
from lemur_ray.instruct.solved import SolvedFilter
from lemur_ray.rollout.evaluation_folder import EvaluationError, evaluation_folders, prepare_out
from lemur_ray.rollout.ledger import LedgerError
from lemur_ray.storage.published_folder import output_file


@dataclass(frozen=True)
class ExportJob:
    """Export solved episodes as instruction data."""

    episodes: tuple[str, ...] = ()
    """Folders with an episodes.jsonl, also gs:// or s3://. Empty: every one under LEMUR_HOME/episodes."""
    out: str = ""
    """File to write, also gs:// or s3://. Empty: LEMUR_HOME/instruct/solved.jsonl."""
    rules: Annotated[SolvedFilter, tyro.conf.arg(name="")] = SolvedFilter()
    how: Annotated[HowToExport, tyro.conf.arg(name="")] = HowToExport()


def main(argv: Sequence[str] | None = None) -> int:
    job = parse(ExportJob, argv, prog="export_sft.py")
    out = resolve_out(job.out, "instruct/solved.jsonl")
    try:
        folders = evaluation_folders(job.episodes)
        folders = folders or sorted(p.parent for p in lemur_home().glob("episodes/*/episodes.jsonl"))
        with output_file(out, beside=(".json",)) as file:
            prepare_out(str(file.parent))
            counts = export(folders, file, job.rules, job.how)
    except (EvaluationError, LedgerError, ImportError, ValueError, OSError) as error:
        return _path.fail("export_sft", error)
    for line in counts["said"]:
        print(f"export_sft: {line}", file=sys.stderr)
    print(json.dumps({"out": out, **counts}))
    return 0 if counts["kept"] else 1


if __name__ == "__main__":
    _path.run(main)
