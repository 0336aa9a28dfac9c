"""How the present code is asked for what the golden files say: everything of it that may move is named in `NAMES`.

`make_golden.py` writes the answers down, `test_golden.py` asks again and compares. Whatever can be is asked through the
command lines of ``jobs/``, which stay; a move of modules edits the table and nothing below it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

NAMES = {
    # Recipes and what a command line makes of them.
    "RECIPES": "lemur_ray.recipes:NAMES",
    "Recipe": "lemur_ray.config:Recipe",
    "drop_newer": "lemur_ray.config.recipe:drop_newer",
    "get_recipe": "lemur_ray.recipes:get_recipe",
    "with_vocabulary": "lemur_ray.recipes:with_vocabulary",
    "with_whole_epochs": "lemur_ray.instruct.epochs:with_whole_epochs",
    "TrainingJob": "lemur_ray.train.job_arguments:TrainingJob",
    "parse_job": "lemur_ray.train.job_arguments:parse_job",
    # A run in this process, without Ray.
    "Run": "lemur_ray.train.run.folder:Run",
    "prepare": "lemur_ray.train.run.folder:prepare",
    "loop": "lemur_ray.train.loop:train",
    "Worker": "lemur_ray.train.loop:Worker",
    "plan_for": "lemur_ray.plan.plan:plan_for",
    "iterate": "lemur_ray.plan.fetch:iterate",
    "read_manifest": "lemur_ray.corpus.manifest:read_manifest",
    # What names a build and a table.
    "CorpusConfig": "lemur_ray.corpus.config:CorpusConfig",
    "describe": "lemur_ray.corpus.config:describe",
    "build_hash": "lemur_ray.corpus.config:build_hash",
    "settings": "lemur_ray.instruct.config:settings",
    "SetsConfig": "lemur_ray.instruct.config:SetsConfig",
    "build_sets": "lemur_ray.instruct.pipeline:build_sets",
    "build_table": "lemur_ray.instruct.table:build_table",
    "Conversation": "lemur_ray.instruct.conversation:Conversation",
    "demonstrations": "envs.alfworld.demonstrations:demonstrations",
    "Tokenizer": "lemur_ray.text.tokenizer:Tokenizer",
    # Where an evaluation has planned all its episodes and is about to play them.
    "missing_requirements": "lemur_ray.evaluation.preflight:missing_requirements",
    "run_episodes": "lemur_ray.rollout.evaluation:run_episodes",
    "names": "lemur_ray.benchmarks.discovery:names",
}
"""What the golden files need of the library besides ``jobs/``: module and name."""

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).resolve().parent
Json = Any


def the(name: str) -> Any:
    """The thing behind a name of `NAMES`."""
    module, _, attribute = NAMES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def replaced(name: str, by: Any) -> Any:
    """A context in which a name of `NAMES` is something else: what this machine lacks is no part of an identity."""
    module, _, attribute = NAMES[name].partition(":")
    return mock.patch.object(importlib.import_module(module), attribute, by)


def golden(name: str) -> Json:
    """What a golden file says."""
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def digest(value: Json) -> str:
    """16 hex digits of a JSON value, text or bytes."""
    if not isinstance(value, str | bytes):
        value = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()[:16]


# Command lines


@contextlib.contextmanager
def surroundings(home: Path, **more: str) -> Iterator[None]:
    """A private LEMUR_HOME without outside data, which is also the working directory; ``more`` joins the variables."""
    home.mkdir(parents=True, exist_ok=True)
    before = os.getcwd()
    with mock.patch.dict(os.environ, {"LEMUR_HOME": str(home), **more}), mock.patch.object(sys, "path", [*sys.path]):
        if "LEMUR_DATA" not in more:
            os.environ.pop("LEMUR_DATA", None)
        sys.path.insert(0, str(ROOT / "jobs"))
        os.chdir(home)
        try:
            yield
        finally:
            os.chdir(before)


def job(name: str, *argv: str) -> tuple[int, str]:
    """``python jobs/NAME.py ARGV`` in this process: exit code and stdout."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            code = importlib.import_module(name).main(list(argv))
        except SystemExit as ended:
            code = ended.code or 0
    return code, out.getvalue()


JOBS = (
    "agent_eval", "build_corpus", "convert", "demo", "doctor", "export_sft", "fidelity", "index_wikipedia", "instruct",
    "mixture_study", "plan_pod", "plan_serving", "pretrain", "report", "serve",
)  # fmt: skip


SHOWS = {"agent_eval": ("alfworld/text", "intercode/sql", "intercode/bash", "mint/gsm8k")}
"""Jobs whose help shows the flags of one benchmark -> benchmarks that have all of them together."""


def help_of(name: str) -> dict[str, list[str]]:
    """Flag of a job -> how it is given, and the default that its help states; of all its benchmarks.

    ``--handicap, --no-handicap`` is one flag. The help texts themselves may be reworded, so they are not kept.
    """
    flags: dict[str, list[str]] = {}
    for shown in SHOWS.get(name, ("",)):
        flags = {**_help(name, *(("--benchmark", shown) if shown else ()), "--help-all"), **flags}
    return dict(sorted(flags.items()))


def _help(name: str, *argv: str) -> dict[str, list[str]]:
    with mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}):
        code, text = job(name, *argv)
    assert code == 0, f"{name}.py --help-all: exit code {code}"
    # A flag begins in the first column of its box (of argparse: the third), what is said of it stands further in.
    pieces: list[list[str]] = []
    begun = False
    for line in re.sub("\x1b\\[[0-9;]*m", "", text).splitlines():
        if begins := re.match(r"(?:[│|] |  )(--?[a-zA-Z].*)", line):
            pieces.append([begins[1].rstrip("│| ")])
            begun = True
        elif begun and re.match(r"[│|]?  +\S", line):
            pieces[-1].append(line.strip("│| "))
        else:
            begun = False
    flags: dict[str, list[str]] = {}
    for piece in pieces:
        given = re.split(r"\s{2,}", piece[0])[0]
        default = re.findall(r"\(default: (.*?)\)(?=$| \()", " ".join(piece))
        flags[given.split(" ")[0].rstrip(",")] = [given, *default[-1:]]
    return flags


# Recipes


EDITS = {
    "nano, ten steps": "nano --train.steps 10",
    "nano, another seed and mixture": "nano --train.seed 3 --data.seed 4 --data.sources a:code:2.5 b:text:1:0.5",
    "nano, what decides no number": "nano --train.microbatches 2 --train.remat full --train.checkpoint-every-steps 7 "
    "--mesh.tp 2 --watch.sinks tensorboard",
    "nano, skipped rows": "nano --train.skip-rows 3 5 8 9",
    "nano, long rope": "nano --model.rope-scaling.kind llama3 --model.rope-scaling.factor 8",
    "nano-chat, adamw": "nano-chat --optimizer.name adamw --optimizer.peak-lr 1e-4",
    "lemur-7b-chat, adapters": "lemur-7b-chat --lora.rank 4 --lora.also embed head",
    "llama2-70b, short rows": "llama2-70b --data.seq-len 2048 --model.tie-embeddings",
    "lemur-70b-chat, one pass": "lemur-70b-chat --tuning.epochs 1 --tuning.batch-examples 64",
}


def parsed(arguments: Sequence[str]) -> Any:
    """The recipe of ``[RECIPE] --flags``."""
    return the("parse_job")(the("TrainingJob"), list(arguments), prog="golden").recipe


def recipes() -> Json:
    """Hashes of all recipes, as they are and with a vocabulary, of edited ones, and of corpora and tables."""
    get = the("get_recipe")
    corpora: dict[str, dict[str, Any]] = {
        "default": {},
        "sources": {"source": ("a:code:code", "b:text:b.jsonl"), "seq_len": 512, "vocab_size": 4096, "seed": 7},
        "no held-out rows": {"heldout_rows": 0, "code_to_text": 2.0, "embedded_mb": 1.0},
        "a given tokenizer": {"tokenizer": "0123456789abcdef", "tokenizer_extra": ("extra.jsonl",)},
    }
    describe, build_hash, config = the("describe"), the("build_hash"), the("CorpusConfig")
    sets = the("SetsConfig")
    options: dict[str, dict[str, Any]] = {
        "default": {},
        "two files": {"oasst1": ("a",), "evol": ("b", "c"), "encoder": "hashing:64"},
    }
    return {
        "names": list(the("RECIPES")),
        "hashes": {name: get(name).hash for name in the("RECIPES")},
        "without a name": {"hash": the("Recipe")().hash, "fields": digest(fields_of(the("Recipe")()))},
        "with a vocabulary of 3000 tokens": {
            name: the("with_vocabulary")(get(name), 3000).hash for name in ("nano", "nano-chat", "llama2-7b")
        },
        "fields": {name: digest(fields_of(get(name))) for name in the("RECIPES")},
        "edited": {name: parsed(flags.split()).hash for name, flags in EDITS.items()},
        "corpora": {name: build_hash(describe(config(**fields))) for name, fields in corpora.items()},
        # A table is looked for by its files' sizes and times too; of that name these options are the lasting part.
        "sets": {name: digest(the("settings")(sets(**fields))) for name, fields in options.items()},
        "tables": {f"{games} games": games_table(games) for games in (1, 3)},
    }


def fields_of(recipe: Any) -> Json:
    """All fields of a recipe but those that no version before had and that are at their defaults."""
    value: Json = dataclasses.asdict(recipe)
    the("drop_newer")(value)
    return value


def games_table(games: int) -> str:
    """Name of the table of so many expert games, in single bytes."""
    talks = [the("Conversation")("alfworld", name, messages) for name, messages in the("demonstrations")(games)]
    with tempfile.TemporaryDirectory() as shelf:
        folder, _ = the("build_table")(talks, the("Tokenizer").bytes_only(), shelf, seq_len=2048)
        return str(folder.name)
