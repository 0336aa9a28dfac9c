"""LiveCodeBench (Jain et al. 2024, arXiv 2403.07974), code generation: ``livecodebench``, tasks
``livecodebench/<question_id>``.

Data below ``DATA``: ``livecodebench/test.jsonl``, ``test2.jsonl``, ... of code_generation_lite, those that are there. A
problem's private tests are packed (base64, zlib, a pickled text of JSON); they are read without running any pickle."""

import base64
import hashlib
import io
import json
import pickle
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from envs.outside_data import SETS
from envs.programs.code_in_replies import code_in
from envs.programs.livecodebench.tests_of_problem import TOTAL_S, fault
from envs.published_protocols import published_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.question import Graded, QuestionDetails, question
from lemur_ray.benchmarks.resource_request import PROGRAMS
from lemur_ray.benchmarks.rows import find_file
from lemur_ray.benchmarks.sandboxed import Sandboxed, first_task_loads_in_sandbox
from lemur_ray.host.json_files import open_bytes, parse_json
from lemur_ray.storage.bundles.host_path import HostPath

FILES = ("test.jsonl", *(f"test{number}.jsonl" for number in range(2, 7)))
SOURCES = SETS["livecodebench"]
_FOLDERS = ("livecodebench", "code_generation_lite")
_PATTERNS = tuple(f"{folder}/{file}" for folder in _FOLDERS for file in FILES)
_HELP = "LiveCodeBench: livecodebench/code_generation_lite on the Hub; CC; python jobs/fetch_data.py livecodebench"
_FIELDS = (
    *("question_id", "question_content", "starter_code", "contest_date"),
    *("public_test_cases", "private_test_cases", "metadata", "difficulty"),
)
_MOST_BYTES = 2**30
"""Limit of a problem's unpacked tests"""


@dataclass(frozen=True)
class LiveCodeBenchOptions(Sandboxed):
    """Command-line options of LiveCodeBench: first and last date of the contests."""

    since: str = ""
    """First date of the contests, YYYY-MM-DD. Empty: the first of the data."""
    until: str = ""
    """Last date of the contests, YYYY-MM-DD. Empty: the last of the data."""

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            value = getattr(self, name)
            if value and not _is_date(value):
                raise ValueError(f"--{name} {value}: expected a date, YYYY-MM-DD")
        if self.since and self.until and self.since > self.until:
            raise ValueError(f"--since {self.since} is after --until {self.until}")

    def includes(self, contest: str) -> bool:
        """Whether a contest's date, as ISO text, is within ``since`` and ``until``."""
        return (self.since or contest[:10]) <= contest[:10] <= (self.until or contest[:10])


def _is_date(text: str) -> bool:
    """Whether a text is a date of the form YYYY-MM-DD, by which contests are compared."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _load(options: LiveCodeBenchOptions, request: EvaluationRequest) -> Iterator[Task]:
    data = request.data_folder("what LiveCodeBench asks")
    find_file(data, _PATTERNS, _HELP)
    for file in FILES:
        names = [f"{folder}/{file}{packed}" for folder in _FOLDERS for packed in ("", ".gz")]
        path = next((data / name for name in names if (data / name).is_file()), None)
        if path is None:
            continue
        with open_bytes(path) as lines:
            offset = 0
            for number, line in enumerate(lines, 1):
                if line.strip():
                    row = parse_json(line, path, number)
                    if missing := [name for name in _FIELDS if row.get(name) is None]:
                        raise ValueError(
                            f"{path}, line {number}: no {', '.join(missing)}; expected LiveCodeBench's rows"
                        )
                    if options.includes(str(row["contest_date"])):
                        digest = hashlib.sha256(line).hexdigest()[:16]
                        yield _task(row, options.sandbox, {"file": HostPath(path), "offset": offset}, digest)
                offset += len(line)


def _task(row: Mapping[str, Any], sandbox: str, reference: Mapping[str, Any], digest: str) -> Task:
    """``reference``: where the row is; its tests, up to 100 MB, are read when a reply is graded."""
    starter = row["starter_code"]
    order = "Write a Python program that solves this problem"
    order += ", by completing the given code." if starter else ". It reads standard input and writes standard output."
    prompt = f"{order} Reply with the whole program in one fenced block.\n\n{row['question_content']}\n"
    prompt += f"\n```python\n{starter}\n```\n" if starter else ""
    details = QuestionDetails(backend=sandbox, data=digest)
    name = f"livecodebench/{row['question_id']}"
    return question("livecodebench", name, str(row["difficulty"]), prompt, f"{__name__}:grade", reference, details)


class _NoObjects(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in packed tests, expected a text alone")


def unpacked(text: str) -> list[dict[str, str]]:
    """Tests ({input, output, ...}) from JSON, or from its packed form. Raises ValueError for anything else."""
    try:
        if not text.lstrip().startswith("["):
            packed = zlib.decompressobj()
            content = packed.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
            if packed.unconsumed_tail:
                raise ValueError(f"more than {_MOST_BYTES} bytes")
            text = content.decode() if content[:1] == b"[" else _NoObjects(io.BytesIO(content)).load()
        tests: list[dict[str, str]] = json.loads(text)
        if not all(isinstance(test["input"], str) and isinstance(test["output"], str) for test in tests):
            raise ValueError("input and output are no texts")
    except (ValueError, TypeError, KeyError, LookupError, EOFError, zlib.error, pickle.UnpicklingError) as error:
        raise ValueError(f"tests of LiveCodeBench cannot be read: {error}") from error
    return tests


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the program in a reply passes all tests of the problem. Raises ValueError for damaged data."""
    place = options["reference"]
    with open_bytes(Path(place["file"])) as file:
        file.seek(place["offset"])
        row = json.loads(file.readline())
    tests = [*unpacked(row["public_test_cases"]), *unpacked(row["private_test_cases"])]
    function = str(json.loads(row["metadata"] or "{}").get("func_name") or "")
    program = code_in(reply, rf"def\s+{re.escape(function)}\b" if function else "")
    why = fault(program, tests, function, options.get("backend", "bwrap"))
    return Graded(float(not why), program, why)


BENCHMARKS = {
    "": Benchmark(
        LiveCodeBenchOptions, _load, {"full": 2048, "brief": 2048}, needs=first_task_loads_in_sandbox(_load),
        min_step_s=TOTAL_S + 10, resources=PROGRAMS, sources=SOURCES,
        details=BenchmarkDetails("1055", file_patterns=_PATTERNS, protocol=published_protocol("livecodebench")),
    )
}  # fmt: skip
