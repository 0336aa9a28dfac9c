"""MBPP (Austin et al. 2021, arXiv 2108.07732), three examples: ``mbpp``, tasks ``mbpp/<task_id>``.

Data below ``DATA``: ``mbpp/mbpp.jsonl`` of google-research, or the Hub's parquet files (``mbpp/full``). The examples
are tasks 2, 3 and 4. A reply is tested in sandboxes by the three assertions in its prompt."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from envs.outside_data import SETS
from envs.published_protocols import column_protocol
from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.protocol_options import Protocol, version_by_mode
from lemur_ray.benchmarks.question import QuestionDetails, question
from lemur_ray.benchmarks.resource_request import COMMANDS
from lemur_ray.benchmarks.rows import files_digest, find_file, read_rows
from lemur_ray.benchmarks.run_notes import EvaluationRun
from lemur_ray.benchmarks.sandboxed import PROGRAM_S, Sandboxed, first_task_loads_in_sandbox
from lemur_ray.outside_data.source import MissingFiles

FILES = ["mbpp/mbpp.jsonl", "mbpp.jsonl", "bench/mbpp/mbpp.jsonl", "google-research/mbpp/mbpp.jsonl"]
FIELDS = ("task_id", "text", "code", "test_list")
SOURCE = "MBPP: mbpp/mbpp.jsonl of google-research/google-research; CC BY 4.0; python jobs/fetch_data.py mbpp"
SPLITS = {"prompt": range(1, 11), "test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)}
PARQUET = {split: f"mbpp/full/{split}-00000-of-00001.parquet" for split in SPLITS}
SOURCES = SETS["mbpp"]
EXAMPLES = (2, 3, 4)


@dataclass(frozen=True)
class MbppOptions(Protocol, Sandboxed):
    """Command-line options of MBPP: split and number of worked examples."""

    split: Literal["test", "train", "validation", "prompt", "all"] = "test"
    """Tasks by their numbers: test is 11 to 510."""
    shots: int = 3
    """Number of worked examples before the task, at most 3."""

    def __post_init__(self) -> None:
        if not 0 <= self.shots <= len(EXAMPLES):
            raise ValueError(f"--shots {self.shots}: expected 0 to {len(EXAMPLES)}")


def _load(options: MbppOptions, request: EvaluationRequest) -> Iterator[Task]:
    data = request.data_folder("what MBPP asks")
    paths = _paths(data, options)
    rows = {int(row["task_id"]): row for path in paths for row in read_rows(path, FIELDS)}
    data_id = files_digest(*paths)
    if missing := [number for number in EXAMPLES[: options.shots] if number not in rows]:
        raise ValueError(f"{paths[0]}: the examples are its tasks {EXAMPLES}, of which {missing} are not there")
    examples = [rows[number] for number in EXAMPLES[: options.shots]]
    for number in sorted(rows):
        if options.split == "all" or number in SPLITS[options.split]:
            yield _task(options, rows[number], [row for row in examples if row["task_id"] != number], data_id)


def _paths(data: Path, options: MbppOptions) -> list[Path]:
    """The authors' one data file, or the Hub's. Raises MissingFiles if split or examples are missing."""
    there = {split: data / name for split, name in PARQUET.items() if (data / name).is_file()}
    try:
        return [find_file(data, FILES, SOURCE)]
    except MissingFiles:
        if not there:
            raise
    needed = set(PARQUET) if options.split == "all" else {options.split, *(["prompt"] if options.shots else [])}
    if absent := [PARQUET[split] for split in PARQUET if split in needed - there.keys()]:
        raise MissingFiles(
            f"{data}: of MBPP's parquet files {', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not there, so "
            f"not every task of --split {options.split} could be played: python jobs/fetch_data.py mbpp --data {data}",
            absent,
        )
    return list(there.values())


def _task(options: MbppOptions, row: Mapping[str, Any], examples: list[dict[str, Any]], data_id: str) -> Task:
    end = "\n[DONE]" if options.raw else "[/PYTHON]"
    setup = row.get("test_setup_code") or ""
    lost = bool(setup) and options.mode == "lemur"  # the released script runs no task's own setup
    turns: list[Message] = []
    if not options.raw:
        for example in examples:
            turns.append(Message("user", _as_conversation(example)))
            turns.append(Message("assistant", f"[PYTHON]\n{example['code']}\n[/PYTHON]"))
        turns.append(Message("user", _as_conversation(row)))
    worked = "".join(f"{_stated(example)}[BEGIN]\n{example['code']}\n[DONE]\n\n" for example in examples)
    details = QuestionDetails(
        worked if options.raw else "", options.raw, "[PYTHON]" if options.prefill and not options.raw else "",
        stop=(end, "\nassert", "\nprint"), gold=None if lost else f"\n{row['code']}\n{end.strip()}",
        backend=options.sandbox, data=data_id,
    )  # fmt: skip
    reference = {"tests": list(row["test_list"]), "setup": "" if lost else setup}
    name, prompt = f"mbpp/{row['task_id']}", turns or f"{_stated(row)}[BEGIN]"
    return question("mbpp", name, "mbpp", prompt, "envs.programs.mbpp.program:grade", reference, details)


def _stated(row: Mapping[str, Any]) -> str:
    tests = "\n".join(row["test_list"])
    return f"You write Python well. Your task: {row['text']} These tests must pass:\n\n{tests}\n"


def _as_conversation(row: Mapping[str, Any]) -> str:
    return f"{_stated(row)}\nWrite the code between [PYTHON] and [/PYTHON]."


def _turn_departures(run: EvaluationRun) -> Sequence[str]:
    """Departure of chat prompts from the script released with Lemur, whose example replies have no end of turn."""
    there = run.settings.get("form") == "chat" and run.settings.get("mode") == "lemur"
    return ("examples' turns are ended",) if there and run.settings.get("shots", 1) else ()


_DETAILS = BenchmarkDetails(
    "500 (974 with --split all)", file_patterns=(*FILES, *PARQUET.values()),
    protocol=column_protocol("mbpp", options=MbppOptions, further=_turn_departures),
)  # fmt: skip
BENCHMARKS = {
    "": Benchmark(
        MbppOptions, _load, {"full": 650, "brief": 650}, needs=first_task_loads_in_sandbox(_load),
        # In mode lemur, tasks' own setup is not run; in both, fences of tildes and text around a program, NumPy.
        version=lambda options: version_by_mode(options) + 1,
        min_step_s=PROGRAM_S, resources=COMMANDS, sources=SOURCES, has_hints=True, details=_DETAILS,
    )
}  # fmt: skip
