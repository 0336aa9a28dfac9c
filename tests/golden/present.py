"""How the present code is asked for what the golden files say: everything of it that may move is named in `NAMES`.

`make_golden.py` writes the answers down, `test_golden.py` asks again and compares. Whatever can be is asked through the
command lines of ``jobs/``, which stay; a move of modules edits the table and nothing below it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import importlib
import io
import json
import os
import re
import shutil
import signal
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

NAMES = {
    # Recipes and what a command line makes of them.
    "RECIPES": "lemur_ray.recipes:NAMES",
    "Recipe": "lemur_ray.config:Recipe",
    "get_recipe": "lemur_ray.recipes:get_recipe",
    "with_vocabulary": "lemur_ray.recipes:with_vocabulary",
    "with_whole_epochs": "lemur_ray.instruct.epochs:with_whole_epochs",
    "TrainingJob": "lemur_ray.train.job_arguments:TrainingJob",
    "parse_job": "lemur_ray.train.job_arguments:parse_job",
    # A run in this process, without Ray.
    "Run": "lemur_ray.train.run.folder:Run",
    "prepare": "lemur_ray.train.run.folder:prepare",
    "loop": "lemur_ray.train.loop:train",
    "plan_for": "lemur_ray.plan.plan:plan_for",
    "iterate": "lemur_ray.plan.fetch:iterate",
    "read_manifest": "lemur_ray.corpus.manifest:read_manifest",
    # What names a build and a table.
    "CorpusConfig": "lemur_ray.corpus.config:CorpusConfig",
    "describe": "lemur_ray.corpus.config:describe",
    "build_hash": "lemur_ray.corpus.config:build_hash",
    "SetsConfig": "lemur_ray.instruct.config:SetsConfig",
    "build_sets": "lemur_ray.instruct.pipeline:build_sets",
    "build_table": "lemur_ray.instruct.table:build_table",
    "Conversation": "lemur_ray.instruct.conversation:Conversation",
    "demonstrations": "envs.alfworld.demonstrations:demonstrations",
    "Tokenizer": "lemur_ray.text.tokenizer:Tokenizer",
    # Where an evaluation has planned all its episodes and is about to play them.
    "lacking": "lemur_ray.preflight:lacking",
    "run_orders": "lemur_ray.rollout.evaluation:run_orders",
    "names": "lemur_ray.benchmarks.discovery:names",
}
"""What the golden files need of the library besides ``jobs/``: module and name."""

ROOT = Path(__file__).resolve().parents[2]
THAT_HOUR = "2026112214"
"""When the golden files were written: a file tree of InterCode-Bash lies in a folder named after its hour."""
GOLDEN = Path(__file__).resolve().parent
Json = Any


def the(name: str) -> Any:
    """The thing behind a name of `NAMES`."""
    module, _, attribute = NAMES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


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
        flags = {**_help(name, *(("--benchmark", shown) if shown else ()), "--help"), **flags}
    return dict(sorted(flags.items()))


def _help(name: str, *argv: str) -> dict[str, list[str]]:
    with mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}):
        code, text = job(name, *argv)
    assert code == 0, f"{name}.py --help: exit code {code}"
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
    "llama2-70b, short rows": "llama2-70b --data.seq-len 2048 --model.tie-embeddings True",
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
        "without a name": {"hash": the("Recipe")().hash, "fields": digest(dataclasses.asdict(the("Recipe")()))},
        "with a vocabulary of 3000 tokens": {
            name: the("with_vocabulary")(get(name), 3000).hash for name in ("nano", "nano-chat", "llama2-7b")
        },
        "fields": {name: digest(dataclasses.asdict(get(name))) for name in the("RECIPES")},
        "edited": {name: parsed(flags.split()).hash for name, flags in EDITS.items()},
        "corpora": {name: build_hash(describe(config(**fields))) for name, fields in corpora.items()},
        # A table is looked for by its files' sizes and times too; of that name these options are the lasting part.
        "sets": {name: digest(dataclasses.asdict(sets(**fields))) for name, fields in options.items()},
        "tables": {f"{games} games": games_table(games) for games in (1, 3)},
    }


def games_table(games: int) -> str:
    """Name of the table of so many expert games, in single bytes."""
    talks = [the("Conversation")("alfworld", name, messages) for name, messages in the("demonstrations")(games)]
    with tempfile.TemporaryDirectory() as shelf:
        folder, _ = the("build_table")(talks, the("Tokenizer").bytes_only(), shelf, seq_len=2048)
        return str(folder.name)


# Evaluations


EVALUATIONS = {
    "alfworld/text": ("alfworld/text", "expert"),
    "alfworld/text, brief": ("alfworld/text", "random --prompt brief --split train --limit 20 --epochs 2 --seed 5"),
    "alfworld/text, unseen goals": ("alfworld/text", "expert --split novel_object --temperature 0.7 --max-tokens 64"),
    "intercode/sql on its sample": ("intercode/sql", "expert"),
    "intercode/sql on its sample, with hints": ("intercode/sql", "random --handicap --reward tau --prompt brief"),
    "intercode/sql": ("intercode/sql", "expert --data DATA"),
    "intercode/sql, as upstream": ("intercode/sql", "expert --data DATA --compat --limit 30 --sample first"),
    "intercode/sql, recorded": (
        "intercode/sql", "replay:DATA/intercode/logs/sql/vicuna/ic_sql_multiturn_vicuna_10_turns.json.gz --data DATA",
    ),
    "intercode/bash": ("intercode/bash", "expert --data DATA"),
    "intercode/bash, as upstream": ("intercode/bash", "random --data DATA --compat --sandbox docker"),
    "intercode/bash, recorded": (
        "intercode/bash",
        "replay:DATA/intercode/logs/bash/vicuna/ic_bash_multiturn_vicuna_10_turns_fs_1.json.gz --data DATA",
    ),
    "intercode/ctf": ("intercode/ctf", "expert --data DATA"),
    "intercode/python": ("intercode/python", "expert --data DATA"),
    "intercode/python, recorded": (
        "intercode/python",
        "replay:DATA/intercode/logs/python/gpt-3.5/ic_python_multiturn_gpt-3.5_7_turns.json.gz --data DATA",
    ),
    **{
        f"mint/{subset}": (f"mint/{subset}", "human --data DATA")
        for subset in ("gsm8k", "math", "theoremqa", "hotpotqa", "mmlu", "humaneval", "mbpp", "alfworld")
    },
    "mint/theoremqa, as in 2023": (
        "mint/theoremqa", "human --data DATA --grader mint-2023 --option-rule head --parser lenient",
    ),
    "mint/math, recorded": (
        "mint/math", "replay:DATA/mint/outputs/Llama-2-70b-chat-hf/F=None/math.results.jsonl.gz --data DATA",
    ),
    "mint/math, recorded with feedback": (
        "mint/math", "replay:DATA/mint/outputs/Llama-2-70b-chat-hf/F=gpt-4-0613/math.results.jsonl.gz --data DATA",
    ),
}  # fmt: skip
"""What is asked -> benchmark, and policy with flags. DATA is the folder of outside data; a person plays what has
neither expert nor actions to draw, so that no endpoint is asked."""


class Planned(BaseException):
    """All episodes of an evaluation, instead of their being played."""


def needs_data(name: str) -> bool:
    return "DATA" in EVALUATIONS[name][1]


def replaced(name: str, by: Any) -> Any:
    """A context in which a name of `NAMES` is something else: what this machine lacks is no part of an identity."""
    module, _, attribute = NAMES[name].partition(":")
    return mock.patch.object(importlib.import_module(module), attribute, by)


def planned(name: str, home: Path, data: Path | None) -> Json:
    """Identity of an evaluation: hash and settings, keys of its first and last episodes, a digest of every task."""
    benchmark, flags = EVALUATIONS[name]
    out = f"planned/{digest(name)}"
    argv = f"--benchmark {benchmark} --actors 0 --out {out} --policy {flags}".split()

    def stop(orders: Sequence[Any], *_: Any, **__: Any) -> None:
        raise Planned(orders)

    told = io.StringIO()
    with surroundings(home), replaced("run_orders", stop), replaced("lacking", lambda needs: []):
        keep_sample(home)
        try:
            with contextlib.redirect_stderr(told):
                code, said = job("agent_eval", *(word.replace("DATA", str(data)) for word in argv))
        except Planned as seen:
            orders = list(seen.args[0])
        else:
            raise AssertionError(f"{name}: exit code {code}\n{said}{told.getvalue()}")
    known = json.loads((home / out / "evaluations.json").read_text())
    ((recipe, about),) = known.items()
    keys = [str(order.key) for order in orders]
    assert {order.key.recipe for order in orders} == {recipe}

    def plain(value: Json) -> str:
        text = re.sub(r"(?<=/)20\d{8}(?=/)", THAT_HOUR, json.dumps(value, sort_keys=True, default=str))
        return text.replace(str(data), "DATA").replace(str(home), "HOME") if data else text.replace(str(home), "HOME")

    fields = [dataclasses.asdict(order.task) for order in orders]
    later = ("cluster", "after", "lanes")
    tasks = [{k: v for k, v in task.items() if k not in later or v} for task in fields]
    return {
        "recipe": recipe,
        "settings": about["settings"],
        "n": len(keys),
        "first": keys[:5],
        "last": keys[-1],
        "keys": digest(keys),
        "categories": digest([task["category"] for task in tasks]),
        "env_ids": sorted({task["env_id"] for task in tasks}),
        "options": sorted({option for task in tasks for option in task["options"]}),
        "tasks": digest([plain(task) for task in tasks]),
        "sampling": digest([plain(dataclasses.asdict(order.sampling)) for order in orders]),
    }


# The ledger


LEDGERS = {
    "alfworld-text-expert": "--benchmark alfworld/text --policy expert --limit 12 --sample first",
    "alfworld-text-random": "--benchmark alfworld/text --policy random --limit 12 --sample first",
    "intercode-sql-expert": "--benchmark intercode/sql --policy expert --limit 8 --sample first",
    "intercode-sql-random": "--benchmark intercode/sql --policy random --limit 8 --sample first --epochs 2",
}
"""Folder under episodes/ -> the command that fills it. When the golden files were written, a limit left the first."""
ONE_BY_ONE = "--actors 0 --in-flight 1"
TIMES = ("wall_s", "policy_s", "env_s")


def keep_sample(home: Path) -> None:
    """The stored sample database in place of one made of this machine's packages; unpacked once."""
    path = home / "intercode" / "sample.sqlite"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.decompress((GOLDEN / "ledger" / "sample.sqlite.gz").read_bytes()))


def play(folder: str, home: Path) -> tuple[Json, str]:
    """The command of a ledger in a home of its own: the JSON of its last line without paths, and stderr."""
    told = io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    with surroundings(home), contextlib.redirect_stderr(told):
        keep_sample(home)
        code, said = job("agent_eval", *LEDGERS[folder].split(), *ONE_BY_ONE.split())
    assert signal.getsignal(signal.SIGTERM) == before
    assert code == 0, told.getvalue()
    return without(home, json.loads(said.splitlines()[-1])), told.getvalue()


def without(home: Path, value: Json) -> Json:
    """A JSON value without the home's path."""
    return json.loads(json.dumps(value).replace(str(home), "HOME"))


def episodes_of(path: Path) -> list[Json]:
    """Episodes of a ledger without the times they took, which are the machine's."""

    def timeless(value: Json) -> Json:
        if isinstance(value, dict):
            return {key: timeless(item) for key, item in value.items() if key not in TIMES}
        return [timeless(item) for item in value] if isinstance(value, list) else value

    return [timeless(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def unpack_ledger(home: Path) -> None:
    """The stored evaluations under ``home``/episodes, as a user would have them."""
    for folder in LEDGERS:
        (home / "episodes" / folder).mkdir(parents=True)
        for stored in sorted((GOLDEN / "ledger" / folder).glob("*.gz")):
            (home / "episodes" / folder / stored.name.removesuffix(".gz")).write_bytes(
                gzip.decompress(stored.read_bytes())
            )


def report_of(home: Path) -> Json:
    """``report.json`` of everything under ``home``, without the day and the paths, and a digest of every other file."""
    with surroundings(home), contextlib.redirect_stderr(io.StringIO()) as told:
        code, said = job("report")
    assert code == 0, said + told.getvalue()
    numbers = without(home, json.loads((home / "report" / "report.json").read_text(encoding="utf-8")))
    del numbers["written"]
    return {"report": numbers, "pages": pages_in(home / "report", home)}


def pages_in(folder: Path, home: Path) -> dict[str, str]:
    """Digest of every page and table in a folder, without days and paths."""
    pages = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".html", ".csv")):
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "DAY", path.read_text(encoding="utf-8"))
        pages[path.relative_to(folder).as_posix()] = digest(text.replace(str(home), "HOME"))
    return pages


# Training


MODEL = (
    "--model.vocab-size 288 --model.num-layers 2 --model.dim 8 --model.ffn-dim 16 --model.num-heads 2 "
    "--model.num-kv-heads 1 --model.head-dim 4 --model.max-seq-len 64 --data.seq-len 64 --optimizer.warmup-steps 2 "
    "--train.rows-per-step 2 --train.log-every-steps 1 --train.checkpoint-every-steps 3 --train.keep-checkpoints 1 "
    "--train.eval-rows 0 --train.spike-sigmas 0"
)
PRETRAIN = f"nano {MODEL} --train.steps 8"
TUNE = f"nano-chat {MODEL} --train.steps 4"
CHECKPOINT = 3
STOP_AFTER = 4
"""Steps of the run that was cut off, and of its checkpoint; its last line of metrics was not written yet."""
CORPUS = (
    "--source code:code:texts/code --source text:text:texts/text.jsonl --vocab-size 288 --seq-len 64 --heldout-rows 2 "
    "--tokenizer-sample-mb 0.1 --word-pattern numbered --workers 0 --out corpus"
)
CLOCK = (
    "tokens_per_s", "step_s", "time_s", "eta_s", "first_step_s", "unix_s", "flops_per_s_6n", "flops_per_s_6n_causal",
    "mfu_6n", "mfu_6n_causal", "device_memory_peak_bytes", "host_memory_peak_bytes",
)  # fmt: skip
"""What of a line of metrics is the machine's."""


def write_texts(folder: Path) -> None:
    """A handful of invented modules and articles, and conversations; the same on every machine."""
    (folder / "code").mkdir(parents=True)
    nouns = ("river", "stone", "lamp", "harbour", "ladder", "violin", "orchard", "kettle", "compass", "meadow")
    verbs = ("carry", "mend", "paint", "count", "borrow", "polish", "follow", "gather")
    for i, noun in enumerate(nouns):
        functions = [
            f"def {verb}_{noun}(things, times={i + j}):\n    found = []\n    for thing in things[:times]:\n"
            f"        found.append((thing, '{verb} the {noun}', times * {j + 2}))\n    return found\n"
            for j, verb in enumerate(verbs)
        ]
        (folder / "code" / f"{noun}.py").write_text("\n\n".join(functions))
    with open(folder / "text.jsonl", "w") as file:
        for i, noun in enumerate(nouns):
            told = [
                f"They {verb} the {noun} by the {nouns[(i + j) % 10]}, and nobody asks number {i * j} for it."
                for j, verb in enumerate(verbs)
            ]
            file.write(json.dumps({"text": f"The {noun}\n\n" + "\n".join(told)}) + "\n")
    with open(folder / "talks.jsonl", "w") as file:
        for i, noun in enumerate(nouns):
            for verb in verbs[:3]:
                asked, said = f"Who can {verb} a {noun}?", f"{i} of us {verb} the {noun}."
                file.write(json.dumps({"instruction": asked, "output": said}) + "\n")


def build_corpus(home: Path) -> Json:
    """The small corpus through jobs/build_corpus.py in ``home``/corpus; its manifest."""
    with surroundings(home):
        write_texts(home / "texts")
        code, said = job("build_corpus", *CORPUS.split())
    assert code == 0, said
    return json.loads((home / "corpus" / "manifest.json").read_text())


def build_talks(home: Path) -> tuple[Path, Json]:
    """The small instruction table, of ``home``/texts, with the corpus' tokenizer; its folder and manifest."""
    tokenizer = the("Tokenizer").load(home / "corpus" / "tokenizer.json")
    config = the("SetsConfig")(evol=("texts/talks.jsonl",), language="", encoder="hashing:64")
    with surroundings(home):
        folder, manifest = the("build_sets")(
            config, tokenizer, home / "instruct", seq_len=64, workers=0, say=lambda line: None
        )
    return folder, manifest


def digests(folder: Path) -> dict[str, str]:
    """Digest of every file of rows and of the tokenizer in a corpus folder."""
    return {
        path.relative_to(folder).as_posix(): digest(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".parquet" and not path.name.startswith(".")
    }


class CutOff(BaseException):
    """Stands for the end of the process in the middle of a run."""


def train(flags: str, corpus: Path, out: Path, *, init_from: str = "", stop_after: int = 0) -> list[Json]:
    """Train or resume in this process, as the worker of jobs/pretrain.py and jobs/instruct.py would.

    Returns the lines of metrics of the whole run without the machine's. ``stop_after``: steps before it is cut off.
    """
    manifest = the("read_manifest")(str(corpus))
    recipe = the("with_vocabulary")(parsed(flags.split()), manifest["vocab_size"])
    recipe, _ = the("with_whole_epochs")(recipe, manifest, 1)
    run = the("Run")(recipe, str(corpus), str(out), init_from)
    the("prepare")(run)
    plan = the("plan_for")(recipe, manifest)

    def feed(start: int) -> Iterator[Any]:
        rows = recipe.train.rows_per_step
        for number, batch in enumerate(the("iterate")(plan, str(corpus), start, rows_per_step=rows)):
            if stop_after and number == stop_after:
                raise CutOff
            yield batch

    with warnings.catch_warnings(), contextlib.suppress(CutOff):
        warnings.simplefilter("ignore", ResourceWarning)  # of what a run that is cut off leaves open
        the("loop")(run, feed, log=lambda line: None)
    return metrics(out)


def metrics(out: Path) -> list[Json]:
    """Lines of a run's metrics.jsonl without the machine's numbers."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]


def unpack(home: Path) -> None:
    """The stored texts, corpus, table and cut-off run under ``home``."""
    home.mkdir(parents=True, exist_ok=True)
    with tarfile.open(GOLDEN / "training.tar.gz") as archive:
        archive.extractall(home, filter="data")


def pack_into(archive: Path, home: Path, names: Sequence[str]) -> None:
    """Files and folders of ``home`` as one .tar.gz whose bytes depend on nothing else."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() else 0o644
        return None if entry.name.endswith(".lock") else entry

    with (
        open(archive, "wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name in names:
            tar.add(home / name, name, filter=plain)


def keep_only(out: Path, names: Sequence[str]) -> None:
    """Remove what a cut-off run need not have to be resumed."""
    for path in out.iterdir():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
