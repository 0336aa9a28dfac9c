"""GPQA (Rein et al. 2023, arXiv 2311.12022), four options in an order drawn from the record's id: ``gpqa/diamond``.

Data: ``gpqa/gpqa_<subset>.csv`` of ``Idavidrein/gpqa``, which is gated, and whose authors ask that no example be
published. The prompt follows the authors' zero-shot chain of thought in this project's words."""

import csv
import io
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from envs.published_protocols import published_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import first_task_loads
from lemur_ray.benchmarks.question import FLEXIBLE, STRICT, Graded, QuestionDetails, question
from lemur_ray.benchmarks.rows import files_digest, find_file, read_text
from lemur_ray.grading.written_letters import chosen_letter
from lemur_ray.outside_data.source import Source

LETTERS = "ABCD"
SUBSETS = {"diamond": 198, "main": 448, "extended": 546}
_HUB = "hub:Idavidrein/gpqa@main"
_TERMS = "GPQA's authors ask that no example be published in plain text or images, so that no model is trained on it."
_HELP = "GPQA: Idavidrein/gpqa on the Hub, gated; CC-BY-4.0; python jobs/fetch_data.py gpqa/{} --accept gpqa"
_RIGHT, *_WRONG = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_ORDER = 'End with "The correct answer is (X)", where X is the letter of your choice. Think step by step before it.'
_STRICT = re.compile(r"answer is \(?([A-D])\)?")


@dataclass(frozen=True)
class GpqaOptions:
    """Command-line options of GPQA: the seed that shuffles the choices of a question."""

    seed_of_order: int = 0
    """Seed of the order of the options."""


def _source(subset: str) -> Source:
    name = f"gpqa_{subset}.csv"
    return Source(f"gpqa/{name}", f"{_HUB}/{name}", "", 7_200 * SUBSETS[subset], "CC-BY-4.0", terms=_TERMS)


def _load(subset: str, options: GpqaOptions, request: EvaluationRequest) -> Iterator[Task]:
    names = [f"gpqa/gpqa_{subset}.csv", f"gpqa/dataset/gpqa_{subset}.csv"]
    path = find_file(request.data_folder("what GPQA asks"), names, _HELP.format(subset))
    digest = files_digest(path)
    for number, row in enumerate(csv.DictReader(io.StringIO(read_text(path), newline=""))):
        if missing := [name for name in ("Question", _RIGHT, *_WRONG) if not row.get(name)]:
            raise ValueError(f"{path}, row {number}: no {', '.join(missing)}: it is of another data set")
        record, choices = row.get("Record ID") or str(number), [row[name].strip() for name in (_RIGHT, *_WRONG)]
        order = random.Random(f"{options.seed_of_order}/{record}").sample(range(4), 4)
        right, golds = LETTERS[order.index(0)], [f"The correct answer is ({letter})" for letter in LETTERS]
        listed = "\n".join(f"({letter}) {choices[place]}" for letter, place in zip(LETTERS, order, strict=True))
        prompt = f"{row['Question'].strip()}\n\n{listed}\n\n{_ORDER}"
        details = QuestionDetails(gold=golds[order.index(0)], data=digest, candidates=golds)
        category = row.get("High-level domain") or "all"
        yield question("gpqa", f"gpqa/{subset}/{record}", category, prompt, f"{__name__}:grade", right, details)


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the reply chooses the right letter, in any wording. Score STRICT: by the last "answer is (X)" only."""
    letter, strict = chosen_letter(reply, LETTERS), _STRICT.findall(reply)
    score = float(letter == options["reference"])
    return Graded(score, letter, scores={STRICT: float(strict[-1:] == [options["reference"]]), FLEXIBLE: score})


def _benchmark(subset: str, size: int) -> Benchmark[GpqaOptions]:
    load, patterns = partial(_load, subset), (f"gpqa/dataset/gpqa_{subset}.csv",)
    details = BenchmarkDetails(size=str(size), file_patterns=patterns, protocol=published_protocol("gpqa"))
    return Benchmark(
        GpqaOptions, load, {"full": 2048, "brief": 2048}, version=3,  # lists of verdicts, small letters
        needs=first_task_loads(load), sources=(_source(subset),),
        has_hints=True, details=details,
    )  # fmt: skip


BENCHMARKS = {subset: _benchmark(subset, size) for subset, size in SUBSETS.items()}
