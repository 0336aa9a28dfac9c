"""The mixture study of the paper's appendix A.1.2 at any size: one model, one corpus, several code : text ratios.

A trial is an ordinary run in a folder of its own; trials differ only in ratio and seed. This module makes trials and
runs one in this process. Knows nothing of how they are scheduled and plotted."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lemur_ray.config import Recipe, SourceConfig
from lemur_ray.corpus.manifest import read_manifest
from lemur_ray.plan.fetch import Batch, iterate
from lemur_ray.plan.plan import plan_for
from lemur_ray.recipes import with_vocabulary
from lemur_ray.train.run.folder import Run, check_writable, lock, prepare, write_json

RATIOS = ("1:9", "1:3", "1:1", "3:1", "10:1", "1:0")
"""Default ratios of a study, code : text. 10:1 is the paper's choice; 1:0 is code alone."""
FILE = "study.json"


@dataclass(frozen=True)
class Trial:
    """One run of a study, with one code : text ratio and one seed."""

    ratio: str
    code_share: float
    """Share of the rows that are code."""
    seed: int
    run: Run

    def to_json(self) -> dict[str, Any]:
        folder = Path(self.run.out).name
        return {"ratio": self.ratio, "code_share": self.code_share, "seed": self.seed, "folder": folder}


def make_trials(
    recipe: Recipe, corpus: str, out: str, *, ratios: Sequence[str] = RATIOS, seeds: int = 1, init_from: str = ""
) -> list[Trial]:
    """Make the trials of a study in the folder ``out``, all ratios with seed 0, then seed 1, and so on; writes
    ``study.json`` there and trains nothing. seeds: number of seeds. init_from: model whose parameters start every
    trial; "": random ones. Raises ValueError for an invalid ratio, no seeds, a corpus without code or text, or several
    workers, RunFolderError as ``check_place``, CorpusError and PlanError."""
    check_place(out)
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: expected at least 1")
    if recipe.mesh.num_workers != 1 or recipe.mesh.use_tpu:
        raise ValueError(
            "a trial is one process on CPUs or one GPU: leave --mesh.num-workers at 1 and --mesh.use-tpu off (larger "
            "trials: jobs/pretrain.py with --data.code-to-text, one --out for each, named as in study.json)"
        )
    manifest = read_manifest(corpus)
    kinds = {source["kind"] for source in manifest["sources"] if source["rows"]}
    if not {"code", "text"} <= kinds:
        raise ValueError(f"corpus {corpus} has sources of {', '.join(sorted(kinds))}: expected both code and text")
    recipe = with_vocabulary(recipe, manifest["vocab_size"])
    trials = []
    for seed in range(seeds):
        for ratio in dict.fromkeys(ratios):
            code, text = parse_ratio(ratio)
            mixed = dataclasses.replace(
                recipe,
                data=dataclasses.replace(recipe.data, seed=seed, **mixture(manifest, code, text)),
                train=dataclasses.replace(recipe.train, seed=seed),
            )
            plan_for(mixed, manifest)
            folder = f"{out}/{ratio.replace(':', 'to')}-seed{seed}"
            trials.append(Trial(ratio, code / (code + text), seed, Run(mixed, corpus, folder, init_from)))
    about = {"recipe": recipe.name, "steps": recipe.train.steps, "tokens_per_step": recipe.tokens_per_step}
    write_json(f"{out}/{FILE}", {**about, "corpus": corpus, "trials": [trial.to_json() for trial in trials]})
    return trials


def check_place(out: str) -> None:
    """Raises ValueError if ``out`` is a bucket, RunFolderError if the folder cannot be written."""
    if "://" in out:
        raise ValueError(f"--out {out}: a study is drawn from files of this machine: choose a folder")
    check_writable(out)


def parse_ratio(text: str) -> tuple[float, float]:
    """Parse a ratio such as ``10:1`` into (10.0, 1.0), parts of code and text. Raises ValueError for another text."""
    parts = text.split(":")
    try:
        code, rest = (float(part) for part in parts)
    except ValueError:
        code, rest = -1.0, -1.0
    if min(code, rest) < 0 or not 0 < code + rest < math.inf:
        raise ValueError(f"ratio {text!r}: expected CODE:TEXT, for example 10:1, or 1:0 for code alone")
    return code, rest


def mixture(manifest: Mapping[str, Any], code: float, text: float) -> dict[str, Any]:
    """Fields of DataConfig that give code and text these parts of the rows. With a part 0, that kind has no source and
    the other kind's sources are weighted by tokens. manifest: of the corpus."""
    if code and text:
        return {"code_to_text": code / text, "sources": ()}
    kind: Literal["code", "text"] = "code" if code else "text"
    alone = [source for source in manifest["sources"] if source["kind"] == kind and source["rows"]]
    return {"sources": tuple(SourceConfig(source["name"], kind, float(source["tokens"])) for source in alone)}


def run_trial(run: Run) -> dict[str, Any]:
    """Train a run in this process into its folder, from its newest checkpoint if any; returns the content of
    ``result.json``. A finished run is not trained again. Rows are the same that Ray Data would feed. Log lines go to
    ``log.txt``. Raises RunInUse if another process trains it for 120 s, and as ``prepare`` and ``loop.train``."""
    from lemur_ray.train import loop

    Path(run.out).mkdir(parents=True, exist_ok=True)
    with lock(run.out, "rank0", wait_s=120.0):  # a trial of a killed driver may still be ending
        if (finished := prepare(run)) is not None:
            return finished
        plan = plan_for(run.recipe, read_manifest(run.corpus))

        def feed(row: int) -> Iterable[Batch]:
            return iterate(plan, run.corpus, row, rows_per_step=run.recipe.train.rows_per_step)

        with open(f"{run.out}/log.txt", "a", buffering=1, encoding="utf-8") as log:
            return loop.train(run, feed, loop.Worker(log=lambda line: print(line, file=log)))
