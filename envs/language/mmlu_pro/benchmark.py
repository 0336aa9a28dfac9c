"""MMLU-Pro (Wang et al. 2024, arXiv 2406.01574), ten options, worked examples that reason: ``mmlu_pro``.

Data: ``mmlu_pro/test-00000-of-00001.parquet`` and ``validation-...``, the examples, of ``TIGER-Lab/MMLU-Pro``, or
their rows as JSON lines. The prompt follows the authors' script in this project's words; the strict rule is theirs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from envs.outside_data import SETS
from envs.published_protocols import published_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import first_task_loads
from lemur_ray.benchmarks.protocol_options import PromptForm
from lemur_ray.benchmarks.question import FLEXIBLE, STRICT, Graded, QuestionDetails, question
from lemur_ray.benchmarks.rows import files_digest, find_file, read_rows
from lemur_ray.grading.written_letters import chosen_letter

LETTERS = "ABCDEFGHIJ"
SOURCES = SETS["mmlu_pro"]
_NAMES = ("mmlu_pro/{}-00000-of-00001.parquet", "mmlu_pro/data/{}-00000-of-00001.parquet", "mmlu_pro/{}.jsonl")
_HELP = "MMLU-Pro: TIGER-Lab/MMLU-Pro on the Hub (data); MIT; python jobs/fetch_data.py mmlu_pro"
_FIELDS = ("question_id", "question", "options", "answer", "category")
_HEADER = (
    "These are multiple choice questions about {category}, each with its answer. Think step by step, and end with "
    '"the answer is (X)", where X is the letter of the right option.\n\n'
)
_STRICT = re.compile(r"answer is \(?([A-J])\)?")


@dataclass(frozen=True)
class MmluProOptions(PromptForm):
    """Command-line options of MMLU-Pro: the number of worked examples."""

    shots: int = 5
    """Number of worked examples of the question's category, at most 5."""

    def __post_init__(self) -> None:
        if not 0 <= self.shots <= 5:
            raise ValueError(f"--shots {self.shots}: expected 0 to 5, there are five examples of a category")


def _load(options: MmluProOptions, request: EvaluationRequest) -> Iterator[Task]:
    data = request.data_folder("what MMLU-Pro asks")
    paths = [find_file(data, [name.format(split) for name in _NAMES], _HELP) for split in ("test", "validation")]
    examples: dict[str, list[str]] = {}
    for row in read_rows(paths[1], (*_FIELDS, "cot_content")):
        worked = str(row["cot_content"]).removeprefix("A:").strip()
        examples.setdefault(row["category"], []).append(f"{_text(row)} {worked}\n\n")
    digest = files_digest(*paths)
    for row in read_rows(paths[0], _FIELDS):
        category = str(row["category"])
        shots = _HEADER.format(category=category) + "".join(examples.get(category, [])[: options.shots])
        details = QuestionDetails(
            shots, options.raw, "Answer:" if options.prefill and not options.raw else "",
            stop=("Question:",) if options.raw else (), gold=_says(row["answer"]), data=digest, cluster=category,
            candidates=list(map(_says, LETTERS[: len(row["options"])])),
        )  # fmt: skip
        prompt = _text(row) if options.raw else _text(row).removesuffix("\nAnswer:")
        reference = {"answer": row["answer"], "options": len(row["options"])}
        name = f"mmlu_pro/{row['question_id']}"
        yield question("mmlu_pro", name, category, prompt, f"{__name__}:grade", reference, details)


def _says(letter: str) -> str:
    return f"The answer is ({letter})."


def _text(row: Mapping[str, Any]) -> str:
    lines = [f"{letter}. {text}" for letter, text in zip(LETTERS, row["options"], strict=False)]
    return "\n".join(["Question:", str(row["question"]), "Options:", *lines, "Answer:"])


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 for the right letter, as a person reads the reply. Strict: the first "answer is (X)", as published."""
    right, letters = options["reference"]["answer"], LETTERS[: options["reference"]["options"]]
    letter, strict = chosen_letter(reply, letters), _STRICT.findall(reply)
    score = float(letter == right)
    return Graded(score, letter, scores={STRICT: float(strict[:1] == [right]), FLEXIBLE: score})


_PATTERNS = tuple(name.format("*") for name in _NAMES)
BENCHMARKS = {
    "": Benchmark(
        MmluProOptions, _load, {"full": 2048, "brief": 2048}, version=3,  # a list of letters chooses none
        needs=first_task_loads(_load), sources=SOURCES, has_hints=True,
        details=BenchmarkDetails("12032", file_patterns=_PATTERNS, protocol=published_protocol("mmlu_pro")),
    )
}  # fmt: skip
