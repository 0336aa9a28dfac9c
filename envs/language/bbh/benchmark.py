"""BIG-Bench Hard (Suzgun et al. 2022, arXiv 2210.09261): ``bbh/cot`` and ``bbh/direct``, tasks ``bbh/<file>/<row>``.

Data below ``DATA`` as in the authors' repository: ``bbh/<file>.json`` and ``cot-prompts/<file>.txt`` (two header lines,
then three worked examples). ``direct`` asks for the answer alone; the answers of its examples are the texts after their
last "so the answer is"."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from envs.language.bbh.answers import FILES, macro_averages
from envs.published_protocols import column_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import first_task_loads
from lemur_ray.benchmarks.protocol_options import Protocol, version_by_prefill
from lemur_ray.benchmarks.question import QuestionDetails, question
from lemur_ray.benchmarks.rows import files_digest, find_file, read_rows, read_text, row_number
from lemur_ray.outside_data.source import Source

Kind = Literal["cot", "direct"]
KINDS: tuple[Kind, ...] = ("cot", "direct")
CUE = "Let's think step by step."
_REPOSITORIES = ("BIG-Bench-Hard", "BIG-Bench-Hard-main")
_HOMES = ("bbh", *(f"{repository}/bbh" for repository in _REPOSITORIES), "bench/bbh")
_ENDINGS = (".json", ".jsonl", "/test-00000-of-00001.parquet")
_PROMPTS = (
    *("bbh/cot-prompts", "cot-prompts", "bbh_cot_prompts"),
    *(f"{repository}/cot-prompts" for repository in _REPOSITORIES),
    "bench/bbh_cot_prompts",
)
_SOURCE = (
    "BIG-Bench Hard: the authors' repository suzgunmirac/BIG-Bench-Hard, its folders bbh and cot-prompts; MIT; "
    "python jobs/fetch_data.py bbh"
)
_GIT = "git:suzgunmirac/BIG-Bench-Hard@9ee07bd481feebf959a6b59d61ea57bdcf30964d"
SOURCES = tuple(
    Source(f"bbh/{there}", f"{_GIT}/{upstream}", "", size, "MIT")
    for file in FILES
    for there, upstream, size in (  # sizes are means
        (f"{file}.json", f"bbh/{file}.json", 92_000),
        (f"cot-prompts/{file}.txt", f"cot-prompts/{file}.txt", 2_800),
    )
)
MOST_CANDIDATES = 20
"""Maximum number of a file's answers from which a random baseline draws."""
_CONCLUSION = re.compile(r".*\bso the answer is\s*", re.IGNORECASE | re.DOTALL)


def _load(kind: Kind, options: Protocol, request: EvaluationRequest) -> Iterator[Task]:
    data = request.data_folder("what BIG-Bench Hard asks")
    paths = {file: path for file in FILES if (path := _file(data, file))}
    if not paths:
        find_file(data, [f"{home}/{FILES[0]}.json" for home in _HOMES], _SOURCE)
    prompts = {file: find_file(data, [f"{home}/{file}.txt" for home in _PROMPTS], _SOURCE) for file in paths}
    data_id = files_digest(*paths.values(), *prompts.values())
    for file, path in paths.items():
        shots = _examples(kind, options, prompts[file])
        rows = list(read_rows(path, ("input", "target")))
        answers = sorted({row["target"] for row in rows})[:MOST_CANDIDATES]
        for place, row in enumerate(rows):
            task = _task(kind, options, file, row_number(row, place), row, shots, data_id)
            yield replace(task, options={**task.options, "candidates": answers})


def _task(kind: Kind, options: Protocol, file: str, number: int, row: dict[str, Any], shots: str, data_id: str) -> Task:
    cue = f"A: {CUE}\n" if kind == "cot" else "A:" if options.form == "chat" else "A: "
    if kind == "cot":
        stop: Sequence[str] = ("\n\n", "Q:") if options.raw or options.prefill else ()
    else:
        stop = ("\n",) if options.raw or options.prefill else ("\n", "Q: ") if options.mode == "lemur" else ()
    gold = f"So the answer is {row['target']}." if kind == "cot" and options.mode == "standard" else row["target"]
    prefill = cue if options.prefill and not options.raw else ""
    details = QuestionDetails(shots, options.raw, prefill, (), stop, gold, data=data_id, cluster=file)
    prompt = f"Q: {row['input']}" + (f"\n{cue}" if options.raw else "")
    grade = f"envs.language.bbh.answers:grade_{kind if options.mode == 'standard' else 'lemur'}"
    return question(f"bbh/{kind}", f"bbh/{file}/{number}", file, prompt, grade, row["target"], details)


def _examples(kind: Kind, options: Protocol, file: Path) -> str:
    """Description and examples in a prompt file, for ``direct`` without reasoning. Raises ValueError without any."""
    text = read_text(file).replace("\r\n", "\n")
    above, ruled, below = text.partition("-----\n")
    description, *examples = (below if ruled else above).strip().split("\n\nQ: ")
    if not examples:
        raise ValueError(f"{file}: it holds no worked examples, each a paragraph that begins with Q: {_SOURCE}")
    if kind == "direct":
        examples = [_without_steps(example, options.mode == "lemur") for example in examples]
    return "\n\nQ: ".join([description, *examples]) + "\n\n"


def _without_steps(example: str, keeps_period: bool) -> str:
    asked, _, steps = example.partition("\nA:")
    answer = _CONCLUSION.sub("", steps).strip()
    return f"{asked}\nA: {answer if keeps_period else answer.removesuffix('.')}"


def _file(data: Path, file: str) -> Path | None:
    try:
        return find_file(data, [f"{home}/{file}{ending}" for home in _HOMES for ending in _ENDINGS], _SOURCE)
    except FileNotFoundError:
        return None


_PATTERNS = (
    *(f"{home}/*{ending}" for home in _HOMES for ending in _ENDINGS), *(f"{home}/*.txt" for home in _PROMPTS),
)  # fmt: skip
BENCHMARKS = {
    kind: Benchmark(
        Protocol, partial(_load, kind), {"full": 512, "brief": 512},
        version=lambda options: version_by_prefill(options) + 1,  # an answer that says "A:" itself is one
        needs=first_task_loads(partial(_load, kind)), sources=SOURCES, has_hints=True,
        details=BenchmarkDetails(
            "6511", file_patterns=_PATTERNS, notes=macro_averages,
            protocol=column_protocol(f"bbh/{kind}", options=Protocol),
        ),
    )
    for kind in KINDS
}  # fmt: skip
