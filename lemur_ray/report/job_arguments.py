"""Command-line arguments of a report, and the folders they name; files in buckets are copied to this host."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.host.home import lemur_home, resolve_out
from lemur_ray.report.inputs import CORPUS_FILES, RUN_FILES, discover
from lemur_ray.rollout.evaluation_folder import LEDGER, EvaluationError, evaluation_folders
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.storage.folder_mirror import mirror_files


@dataclass(frozen=True)
class ReportJob:
    """Render the report, or search or export the episodes that it would show."""

    runs: tuple[str, ...] = ()
    """Run folders of pretraining and tuning. Empty: every run under LEMUR_HOME/runs, or with --episodes none."""
    episodes: tuple[str, ...] = ()
    """Folders with an episodes.jsonl, or of suites. Empty: every one under LEMUR_HOME/episodes."""
    corpus: str = ""
    """Corpus folder. Empty: LEMUR_HOME/corpus/embedded, or with --episodes none."""
    out: str = ""
    """Folder of the page; all of these may lie in a bucket, gs:// or s3://. Empty: LEMUR_HOME/report."""
    find: str = ""
    """Write no page; print every message of the episodes that has this text in it."""
    eval: str = ""
    """Write no page but logs that `inspect view` opens: FILE.eval for one run, else a folder."""

    def folders(self) -> tuple[list[Path], list[Path], Path | None]:
        """Run folders, episode folders and the corpus: those named, by default all under LEMUR_HOME. Copies the files
        that a report reads from a bucket to this host. Raises OSError, ImportError, and EvaluationError for a named
        folder without a ledger; an empty ledger, of an evaluation that has only begun, is a folder like any other."""
        runs, episodes, corpus = discover(lemur_home())
        if self.episodes:
            runs, corpus = [], None
        runs = [_here(run, RUN_FILES) for run in self.runs] or runs
        named = evaluation_folders(self.episodes)
        for folder in named:
            if not (folder / LEDGER).is_file():
                raise EvaluationError(f"{folder} has no {LEDGER}: give the folder that jobs/agent_eval.py wrote to")
        episodes = named or episodes
        return runs, episodes, _here(self.corpus, CORPUS_FILES) if self.corpus else corpus


def _here(named: str, files: Sequence[str]) -> Path:
    place = resolve_out(named, "")
    return mirror_files(place, files) if is_bucket(place) else Path(place)
