"""Train one small model on several code : text ratios of one corpus and draw held-out loss against the ratio.

python jobs/mixture_study.py [RECIPE] [--ratios 1:9 1:1 10:1 1:0] [--seeds 3] [--out DIR] [--train.steps N ...]
Trials are Ray tasks; running the same command again repeats only what is not finished. Prints one JSON line last."""

import _path

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.cluster import connection
from lemur_ray.config import topics
from lemur_ray.evaluation.demonstration_data import demo_corpus
from lemur_ray.corpus.manifest import CorpusError, is_complete
from lemur_ray.host.home import find_model, resolve_out
from lemur_ray.train.job_arguments import TrainingJob, parse_job
from lemur_ray.report.pages.pretraining.mixture_page import ReportError, render_study
from lemur_ray.train.run.folder import RunFolderError
from lemur_ray.train.study import RATIOS, check_place, make_trials


@dataclass(frozen=True)
class StudyJob(TrainingJob):
    """A mixture study. First argument: a recipe, by default nano-mixture, a few minutes for all trials on 2 cores."""

    HELP = topics("study", "training")
    out: str = ""
    """Folder of the study, local: one run folder for each trial, and the page. Empty: studies/<name of the recipe>."""
    ratios: tuple[str, ...] = RATIOS
    """Ratios CODE:TEXT; 1:0 is code alone."""
    seeds: int = 1
    """Number of seeds per ratio; from two on the figure has intervals."""


def main(argv: Sequence[str] | None = None) -> int:
    job = parse_job(StudyJob, argv, prog="mixture_study.py", recipe="nano-mixture")
    corpus, out = resolve_out(job.corpus, "corpus/embedded"), resolve_out(job.out, f"studies/{job.recipe.name}")
    try:
        check_place(out)
        connection.connect(with_data=True)
        from lemur_ray.corpus.build import build
        from lemur_ray.corpus.config import CorpusConfig
        from lemur_ray.train.on_ray.trials import run_trials

        init_from = find_model(job.init_from, buckets=True) if job.init_from else ""
        if not job.corpus and not is_complete(corpus):
            build(**demo_corpus(CorpusConfig()), folder=corpus)
        trials = make_trials(job.recipe, corpus, out, ratios=job.ratios, seeds=job.seeds, init_from=init_from)
        failed = run_trials(trials)
        numbers = render_study(Path(out))
    except (CorpusError, ReportError, RunFolderError, ValueError, OSError) as error:
        return _path.fail("mixture_study", error)
    print(f"page: {out}/index.html\n{json.dumps({'out': out, 'failed': failed, 'results': numbers['results']})}")
    return 1 if failed else 0


if __name__ == "__main__":
    _path.run(main)
