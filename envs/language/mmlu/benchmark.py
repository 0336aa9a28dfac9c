"""MMLU (Hendrycks et al. 2021, arXiv 2009.03300), five worked examples: ``mmlu``, tasks ``mmlu/<subject>/<row>``.

Data below ``DATA``: the authors' ``mmlu/dev/<subject>_dev.csv`` and ``mmlu/test/<subject>_test.csv``, or the parquet
files of ``cais/mmlu`` (``mmlu/all``). Base models are scored by the likeliest next letter; chat models write one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envs.language.mmlu.letters import LETTERS, means
from envs.language.mmlu.subjects import SUBJECTS
from envs.outside_data import SETS
from envs.published_protocols import column_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import first_task_loads
from lemur_ray.benchmarks.protocol_options import Protocol, version_by_mode
from lemur_ray.benchmarks.question import QuestionDetails, question
from lemur_ray.benchmarks.rows import files_digest, find_file, read_cells, read_rows
from lemur_ray.benchmarks.run_notes import EvaluationRun

HEADER = "These are multiple choice questions, each with its answer, about {subject}."
_HOMES = ("mmlu", "mmlu/data", "bench/mmlu", "data")
_FILE = "{split}-00000-of-00001.parquet"
_LAYOUTS = ("test/*_test.csv", "dev/*_dev.csv", "*/test-0*.parquet", "*/dev-0*.parquet")
_SOURCE = (
    "MMLU: data.tar of cais/mmlu on the Hub (folders dev and test), or its all/*.parquet; MIT; "
    "python jobs/fetch_data.py mmlu"
)
SOURCES = SETS["mmlu"]
_LOST = frozenset({"", "None", "NA", "N/A", "NaN", "nan", "null", "NULL", "n/a", "<NA>", "#N/A", "#NA", "-nan", "-NaN"})
"""Option texts that the scripts released with Lemur read as missing values."""


@dataclass(frozen=True)
class Item:
    """A question with four options. ``answer`` is the index of the right one, from 0."""

    question: str
    options: tuple[str, ...]
    answer: int


@dataclass(frozen=True)
class MmluOptions(Protocol):
    """Command-line options of MMLU: worked examples, length and first line of the prompt, and how the letter is
    asked."""

    shots: int = 5
    """Number of worked examples before the question, at most 5."""
    most_chars: int = 8192
    """Maximum characters of a prompt (2,048 tokens): examples are dropped from the end until it fits. 0: no limit."""
    header: str = ""
    """Line above the examples, containing {subject}. Empty: the project's default line."""
    ask: Literal["auto", "choices", "generate"] = "auto"
    """choices: the likeliest next letter, for endpoints with log-probabilities. generate: the letter in the reply.
    auto: choices for a base model, generate for a chat model."""

    def __post_init__(self) -> None:
        if not 0 <= self.shots <= 5:
            raise ValueError(f"--shots {self.shots}: expected 0 to 5, there are five examples of a subject")
        if self.ask == "choices" and self.form == "chat":
            raise ValueError("--ask choices: a chat endpoint weighs no choices; add --form base, or ask for generate")

    @property
    def weighs(self) -> bool:
        return self.raw and self.ask != "generate"


def _load(options: MmluOptions, request: EvaluationRequest) -> Iterator[Task]:
    data = request.data_folder("what MMLU asks")
    lemur = options.mode == "lemur"
    sets, paths = _sets(data, lemur)
    data_id = files_digest(*paths)
    for subject, (examples, items) in sets.items():
        named = subject.replace("_", " ")
        header = (options.header or HEADER).replace("{subject}", f" {named}" if lemur else named)
        worked = [_question_text(item) + f" {LETTERS[item.answer]}\n\n" for item in examples[: options.shots]]
        texts = [f"{header}\n\n" + "".join(worked[:count]) for count in range(len(worked) + 1)]
        for place, item in items:
            own = _question_text(item)
            fits = [text for text in texts if not options.most_chars or len(text + own) <= options.most_chars]
            details = QuestionDetails(
                fits[-1] if fits else texts[0], options.raw, "Answer:" if options.prefill and not options.raw else "",
                [f" {letter}" for letter in LETTERS] if options.weighs else (),
                ("\n",) if options.raw and not options.weighs else (), gold=f" {LETTERS[item.answer]}", data=data_id,
                cluster=subject, candidates=[f" {letter}" for letter in LETTERS],
            )  # fmt: skip
            prompt = own if options.raw else own.removesuffix("\nAnswer:")
            grade, name = "envs.language.mmlu.letters:grade", f"mmlu/{subject}/{place}"
            yield question("mmlu", name, subject, prompt, grade, LETTERS[item.answer], details)


def _question_text(item: Item) -> str:
    lines = [f"{letter}. {text}" for letter, text in zip(LETTERS, item.options, strict=True)]
    return "\n".join([item.question, *lines, "Answer:"])


Sets = dict[str, tuple[list[Item], list[tuple[int, Item]]]]


def _sets(data: Path, lemur: bool) -> tuple[Sets, list[Path]]:
    """Subject -> (examples, [(row number, question)]); and the source files. ``lemur``: see ``_item``."""
    for home in (data / home for home in _HOMES):
        tests = sorted(path for path in home.glob("test/*_test.csv*") if path.is_file())
        if not tests:
            continue
        sets: Sets = {}
        paths: list[Path] = []
        for path in tests:
            subject = path.name.split("_test.csv")[0]
            dev = find_file(data, [f"{home.relative_to(data)}/dev/{subject}_dev.csv"], _SOURCE)
            items = [_item_of_cells(cells, path, lemur) for cells in read_cells(path)]
            sets[subject] = ([_item_of_cells(cells, dev, lemur) for cells in read_cells(dev)], list(enumerate(items)))
            paths += [path, dev]
        return sets, paths
    tests, devs = _parquet(data)
    sets = {subject: ([], []) for subject in sorted(SUBJECTS)}
    for path in devs:
        for subject, item in _items_of_rows(path, lemur):
            sets[subject][0].append(item)
    for path in tests:
        for subject, item in _items_of_rows(path, lemur):
            sets[subject][1].append((len(sets[subject][1]), item))
    return {subject: of for subject, of in sets.items() if of[1]}, [*tests, *devs]


def _parquet(data: Path) -> tuple[list[Path], list[Path]]:
    """The Hub's files as (test, dev): of all subjects together, else of each subject. Raises FileNotFoundError."""
    test, dev = (_FILE.format(split=split) for split in ("test", "dev"))
    for home in _HOMES:
        folders = ["all"] if (data / home / "all" / test).is_file() else sorted(SUBJECTS)
        tests = [data / home / folder / test for folder in folders if (data / home / folder / test).is_file()]
        if tests:
            return tests, [find_file(data, [f"{home}/{path.parent.name}/{dev}"], _SOURCE) for path in tests]
    looked_for = [f"{_HOMES[0]}/test/<subject>_test.csv", *(f"{home}/all/{test}" for home in _HOMES)]
    return [find_file(data, looked_for, _SOURCE)], []


def _items_of_rows(path: Path, lemur: bool) -> Iterator[tuple[str, Item]]:
    """Yield (subject, question) of every row. Raises ValueError that names the row."""
    for number, row in enumerate(read_rows(path, ("question", "subject", "choices", "answer"))):
        options, answer = row["choices"], row["answer"]
        if row["subject"] not in SUBJECTS or len(options) != len(LETTERS) or answer not in range(len(LETTERS)):
            expected = "a subject of MMLU, four choices and the place of the right one"
            raise ValueError(f"{path}, row {number}: {row['subject']!r}, {options!r}, {answer!r}: expected {expected}")
        yield row["subject"], _item(row["question"], options, answer, lemur)


def _item(question: str, options: Sequence[str], answer: int, lemur: bool) -> Item:
    """Build a question. ``lemur``: option texts such as "None" become "nan", as in the scripts released with Lemur."""
    return Item(question, tuple("nan" if lemur and text in _LOST else text for text in options), answer)


def _item_of_cells(cells: list[str], path: Path, lemur: bool) -> Item:
    if len(cells) != 6 or cells[5] not in tuple(LETTERS):
        raise ValueError(f"{path}: a row {cells!r}: expected a question, four options and a letter")
    return _item(cells[0], cells[1:5], LETTERS.index(cells[5]), lemur)


def _not_weighed(run: EvaluationRun) -> Sequence[str]:
    weighed = run.settings.get("form", "base") == "base" and run.settings.get("ask") != "generate"
    return () if weighed else ("letters written instead of weighed",)


def _version(options: MmluOptions) -> int:
    """Version of the scoring: by mode, and 4 higher if letters are generated instead of weighed."""
    return version_by_mode(options) + 4 * (not options.weighs)


_DETAILS = BenchmarkDetails(
    "14042", protocol=column_protocol("mmlu", options=MmluOptions, further=_not_weighed),
    file_patterns=tuple(f"{home}/{files}" for home in _HOMES for files in _LAYOUTS), notes=means,
)  # fmt: skip
BENCHMARKS = {
    "": Benchmark(
        MmluOptions, _load, {"full": 16, "brief": 16}, version=_version, needs=first_task_loads(_load),
        sources=SOURCES, has_hints=True, details=_DETAILS,
    )
}  # fmt: skip
