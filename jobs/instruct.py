"""Tune a run on conversations: the sets of the paper's Table 1, or games and questions about functions (nano-chat)."""

import _path
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from lemur_ray.cluster import connection
from lemur_ray.config.config_file import config_text
from lemur_ray.config import topics
from lemur_ray.evaluation.demonstration_data import conversations_of, make_table, own_conversations, table_shelf
from lemur_ray.host.home import resolve_out
from lemur_ray.instruct.config import Sets, SetsConfig, Talks, TalksConfig, Template
from lemur_ray.train.job_arguments import RunJob, parse_job
from lemur_ray.instruct.epochs import with_whole_epochs


@dataclass(frozen=True)
class InstructJob(RunJob):
    """Tune a run on conversations; the same command again resumes. First argument: a recipe, by default nano-chat."""

    HELP = topics("instruct")
    corpus: str = ""
    """Instruction table. Empty: it is built, in instruct/<name of the recipe>, or in the run's folder in a bucket."""
    init_from: str = ""
    """Run, checkpoint or model folder (name, path or URI) whose parameters start the run. Empty: the run nano."""
    talks: Talks = TalksConfig()
    chat_template: Template = ""
    sets: Sets = SetsConfig()


def main(argv: Sequence[str] | None = None) -> int:
    job = parse_job(InstructJob, argv, prog="instruct.py", recipe="nano-chat")
    recipe, out, own = job.recipe, resolve_out(job.out, f"runs/{job.recipe.name}"), job.talks.conversations
    from lemur_ray.instruct.needs import check_table
    from lemur_ray.corpus.manifest import read_manifest
    from lemur_ray.train.pod.placement import batch_parts
    from lemur_ray.train.run.needs import RUN_ERRORS, check_tuning_run
    from lemur_ray.train.on_ray.trainer import train
    from lemur_ray.weights.open_model import load_tokenizer

    look = partial(check_table, job, table_shelf(job, out), partial(conversations_of, job.talks), batch_parts)
    chats = partial(own_conversations, () if job.corpus else own)
    try:
        here, files = None if job.preflight else connection.available_devices(), (*own, *job.sets.paths)
        init_from = check_tuning_run(recipe, here, out, job.init_from or "nano", job.corpus, files, look, chats)
        if job.preflight:
            return _path.done("instruct: everything that needs no devices is there")
        connection.connect()
        table = make_table(job, out, load_tokenizer, init_from, batch_parts)
        recipe, steps = with_whole_epochs(recipe, read_manifest(table), batch_parts(recipe.mesh))
        print(f"instruction table: {table}\n{steps}", flush=True)
        result = train(recipe, corpus=table, out=out, init_from=init_from, configuration=config_text(job))
        return _path.done(f"finished: {out}\n{json.dumps(result)}")
    except RUN_ERRORS as error:
        return _path.fail("instruct", error)


if __name__ == "__main__":
    _path.run(main)
