"""Corpus, table and runs of the present code, small enough to be stored."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import tarfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.golden.present import GOLDEN, Json, digest, job, parsed, surroundings, the

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
    """Digest of every file of rows and of the tokenizer in a corpus folder, without provenance and outputs of steps."""
    return {
        path.relative_to(folder).as_posix(): digest(_without_provenance(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.suffix not in (".parquet", ".numbers", ".documents", ".html")
        and path.name != "statistics.json"
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def _without_provenance(path: Path) -> bytes:
    """Content of a file; of an index of rows without the files that record their documents, which came later."""
    if path.name != "rows.json":
        return path.read_bytes()
    index = json.loads(path.read_bytes())
    for shard in index["shards"]:
        for kind in ("numbers", "documents"):
            shard["files"].pop(kind, None)
    return json.dumps(index, indent=1, sort_keys=True).encode()


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
        the("loop")(run, feed, the("Worker")(log=lambda line: None))
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
