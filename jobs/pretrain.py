"""Train a recipe on a corpus: python jobs/pretrain.py [RECIPE] [--corpus DIR] [--out DIR] [--train.steps N ...].

Without arguments: the nano recipe on the embedded corpus, which is built first if it is missing, for a run in a bucket
in the run's folder, where every host can read it. Running the same command again resumes from the newest
committed checkpoint. The last line printed is one JSON object."""

import _path

import json
from collections.abc import Sequence
from functools import partial

from lemur_ray.cluster import connection
from lemur_ray.config.config_file import config_text
from lemur_ray.evaluation.demonstration_data import demo_corpus
from lemur_ray.host.home import find_model, resolve_out
from lemur_ray.corpus.manifest import is_complete
from lemur_ray.train.job_arguments import RunJob, parse_job
from lemur_ray.train.run.needs import RUN_ERRORS, check_run, pretraining_checks


def main(argv: Sequence[str] | None = None) -> int:
    job = parse_job(RunJob, argv, prog="pretrain.py")
    out = resolve_out(job.out, f"runs/{job.recipe.name}")
    corpus = resolve_out(job.corpus, f"{out}/corpus" if "://" in out else "corpus/embedded")
    try:
        init_from, resume_from = (
            partial(find_model, spec, buckets=True) if spec else str for spec in (job.init_from, job.resume_from)
        )
        checks = [resume_from, *pretraining_checks(job.recipe, corpus, bool(job.corpus), job.init_from)]
        check_run(job.recipe, None if job.preflight else connection.available_devices(), out, checks)
        if job.preflight:
            return _path.done("pretrain: everything that needs no devices is there")
        connection.connect(with_data=True)
        from lemur_ray.corpus.build import build
        from lemur_ray.corpus.config import CorpusConfig
        from lemur_ray.train.on_ray.trainer import train

        if not job.corpus and not is_complete(corpus):
            print(f"building the embedded corpus at {corpus}", flush=True)
            build(**demo_corpus(CorpusConfig()), folder=corpus)
        result = train(
            job.recipe, corpus=corpus, out=out, init_from=init_from(), resume_from=resume_from(),
            keep_step=job.keep_step, keep_guard=job.keep_guard, configuration=config_text(job),
        )  # fmt: skip
    except RUN_ERRORS as error:
        return _path.fail("pretrain", error)
    print(f"{'already finished' if result.get('already_finished') else 'finished'}: {out}", flush=True)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    _path.run(main)
