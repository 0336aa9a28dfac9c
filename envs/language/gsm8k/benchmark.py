"""GSM8K (Cobbe et al. 2021, arXiv 2110.14168) with worked examples: ``gsm8k``, tasks ``gsm8k/test/<row>``.

Data below ``DATA``: ``gsm8k/test`` and, for the examples, ``gsm8k/train`` as JSON lines or parquet. Eight examples of
one line each, as in chain-of-thought prompting (Wei et al. 2022); by default the first rows of train."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from envs.language.gsm8k.numbers import CALCULATOR, final_answer
from envs.outside_data import SETS
from envs.published_protocols import column_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest, file_option
from lemur_ray.benchmarks.needs import Requirement, requirement_of
from lemur_ray.benchmarks.protocol_options import Protocol
from lemur_ray.benchmarks.question import QuestionDetails, question
from lemur_ray.benchmarks.rows import files_digest, find_file, read_rows, read_text, row_number

INSTRUCTION = "Solve each problem step by step, and end with a sentence that names the answer."
_FOLDERS = ("gsm8k", "bench/gsm8k")
_OF_THE_AUTHORS = ("grade_school_math/data", "grade-school-math/grade_school_math/data")
_SOURCE = (
    "GSM8K: openai/gsm8k on the Hub (main), or grade_school_math/data of openai/grade-school-math; MIT; "
    "python jobs/fetch_data.py gsm8k"
)
_FIELDS = ("question", "answer")
_NAMES = "{split}.jsonl", "{split}.parquet", "main/{split}-00000-of-00001.parquet", "main/{split}.jsonl"
TEST, TRAIN = (
    [
        *(f"{folder}/{name.format(split=split)}" for folder in _FOLDERS for name in (*_NAMES, *more)),
        *(f"{folder}/{split}.jsonl" for folder in _OF_THE_AUTHORS),
    ]
    for split, more in (("test", ()), ("train", ("train_first100.jsonl",)))
)
SOURCES = SETS["gsm8k"]


@dataclass(frozen=True)
class Gsm8kOptions(Protocol):
    """Command-line options of GSM8K: number and file of worked examples."""

    shots: int = 8
    """Number of worked examples before the question."""
    shots_file: str = file_option()
    """A file with worked examples that replaces the default ones: pairs of Question: and Answer:. Empty: train's
    first rows."""

    def __post_init__(self) -> None:
        if self.shots < 0:
            raise ValueError(f"--shots {self.shots}: expected 0 or more")
        if self.shots_file and not Path(self.shots_file).is_file():
            raise ValueError(f"--shots-file {self.shots_file}: no such file")


def _load(options: Gsm8kOptions, request: EvaluationRequest) -> Iterator[Task]:
    data = request.data_folder("what GSM8K asks")
    path = find_file(data, TEST, _SOURCE)
    examples, used = _examples(options, data)
    data_id = files_digest(path, *used)
    shots = f"{INSTRUCTION}\n\n{examples}"
    for place, row in enumerate(read_rows(path, _FIELDS)):
        details = QuestionDetails(
            shots, options.raw, "Answer:" if options.prefill and not options.raw else "",
            stop=("\n",) if options.raw else (), gold=_one_line(row["answer"]), data=data_id,
        )  # fmt: skip
        name, prompt = f"gsm8k/test/{row_number(row, place)}", f"Question: {row['question']}"
        prompt += "\nAnswer:" if options.raw else ""
        reference = {"answer": final_answer(row["answer"]), "rule": options.mode}
        yield question("gsm8k", name, "gsm8k", prompt, "envs.language.gsm8k.numbers:grade", reference, details)


def _examples(options: Gsm8kOptions, data: Path) -> tuple[str, list[Path]]:
    """The worked examples, each followed by a blank line, and the files that they come from."""
    if options.shots_file:
        path = Path(options.shots_file)
        return read_text(path).strip() + "\n\n", [path]
    if not options.shots:
        return "", []
    path = find_file(data, TRAIN, _SOURCE)
    rows = [row for row, _ in zip(read_rows(path, _FIELDS), range(options.shots), strict=False)]
    return "".join(f"Question: {row['question']}\nAnswer: {_one_line(row['answer'])}\n\n" for row in rows), [path]


def _one_line(answer: str) -> str:
    """A solution of the data set as one line that ends in a sentence with its answer."""
    steps = re.sub(r"\s+", " ", CALCULATOR.sub("", answer.partition("####")[0])).strip()
    return f"{steps} So the answer is {final_answer(answer)}."


def _needs(options: Gsm8kOptions, request: EvaluationRequest) -> list[Requirement]:
    if request.data is None:
        return [requirement_of("data", partial(request.data_folder, "what GSM8K asks"))]
    needed = [TEST, TRAIN] if options.shots and not options.shots_file else [TEST]
    return [requirement_of("data", partial(find_file, request.data, places, _SOURCE)) for places in needed]


_DETAILS = BenchmarkDetails(
    "1319", file_patterns=(*TEST, *TRAIN), protocol=column_protocol("gsm8k", options=Gsm8kOptions)
)
BENCHMARKS = {
    "": Benchmark(
        Gsm8kOptions, _load, {"full": 512, "brief": 512}, needs=_needs, sources=SOURCES, has_hints=True,
        details=_DETAILS,
        # 2: a task has the number that its row says, where it says one; 3: a reply's announced number is its answer.
        version=lambda options: 2 if options.mode == "lemur" else 4,
    )
}  # fmt: skip
