"""HumanEval (Chen et al. 2021, arXiv 2107.03374), no examples: ``humaneval``, tasks ``humaneval/HumanEval/<n>``.

Data below ``DATA``: ``humaneval/HumanEval.jsonl`` of openai/human-eval, or the parquet file of the Hub. A completion of
the prompt, or a whole function, is tested in sandboxes with 3 s each."""

from collections.abc import Iterator
from dataclasses import dataclass

from envs.outside_data import SETS
from envs.published_protocols import column_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.protocol_options import Protocol, version_by_prefill
from lemur_ray.benchmarks.question import QuestionDetails, question
from lemur_ray.benchmarks.resource_request import COMMANDS
from lemur_ray.benchmarks.rows import files_digest, find_file, read_rows
from lemur_ray.benchmarks.sandboxed import PROGRAM_S, Sandboxed, first_task_loads_in_sandbox

FILES = [
    *("humaneval/HumanEval.jsonl", "HumanEval.jsonl", "bench/humaneval/HumanEval.jsonl"),
    *(f"{folder}/test-00000-of-00001.parquet" for folder in ("humaneval/openai_humaneval", "openai_humaneval")),
    *("humaneval/test-00000-of-00001.parquet", "human-eval/data/HumanEval.jsonl", "data/HumanEval.jsonl"),
]
FIELDS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
SOURCE = "HumanEval: data/HumanEval.jsonl.gz of openai/human-eval; MIT; python jobs/fetch_data.py humaneval"
SOURCES = SETS["humaneval"]
STOPS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
REQUEST = "Complete this Python function. Reply with its code.\n\n"
LEAD = "Here is the completed function:\n\n"


@dataclass(frozen=True)
class HumanEvalOptions(Protocol, Sandboxed):
    """Command-line options of HumanEval."""


def _load(options: HumanEvalOptions, request: EvaluationRequest) -> Iterator[Task]:
    path = find_file(request.data_folder("what HumanEval asks"), FILES, SOURCE)
    data_id = files_digest(path)
    for row in read_rows(path, FIELDS):
        goes_on = options.raw or options.prefill
        details = QuestionDetails(
            raw=options.raw, prefill=LEAD + row["prompt"] if options.prefill and not options.raw else "",
            stop=STOPS if goes_on else (), gold=row["canonical_solution"], backend=options.sandbox, data=data_id,
        )  # fmt: skip
        name, prompt = f"humaneval/{row['task_id']}", row["prompt"] if options.raw else REQUEST + row["prompt"]
        reference = {name: row[name] for name in ("prompt", "test", "entry_point")} | {"rule": options.mode}
        grade = "envs.programs.humaneval.completion:grade"
        yield question("humaneval", name, "humaneval", prompt, grade, reference, details)


_DETAILS = BenchmarkDetails(
    "164", protocol=column_protocol("humaneval", options=HumanEvalOptions), file_patterns=tuple(FILES)
)
BENCHMARKS = {
    "": Benchmark(
        HumanEvalOptions, _load, {"full": 512, "brief": 512}, needs=first_task_loads_in_sandbox(_load),
        # A whole function, fenced or not, is one; then: NumPy is there, fences of tildes and text around a program.
        version=lambda options: version_by_prefill(options) + 1,
        min_step_s=PROGRAM_S, resources=COMMANDS, sources=SOURCES, has_hints=True, details=_DETAILS,
    )
}  # fmt: skip
