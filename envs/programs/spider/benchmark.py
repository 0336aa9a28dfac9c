"""Spider (Yu et al. 2018, arXiv 1809.08887), one query per question: ``spider``, tasks ``spider/<row of dev>``.

The paper publishes no protocol, so this one is the project's: no examples, the tables with three rows of each,
execution accuracy by the test-suite rule on every available database file. Data below ``DATA``: ``spider/dev.json`` and
``spider/database`` (or the test suite's), as the authors pack them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.outside_data import SETS
from envs.programs.spider.databases import DEV, NAMES, SOURCE, TRAIN, described, files_of, home_of
from envs.programs.spider.hardness import hardness
from envs.published_protocols import column_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import first_task_loads
from lemur_ray.benchmarks.protocol_options import OneProtocol, single_protocol_identity
from lemur_ray.benchmarks.question import QuestionDetails, question
from lemur_ray.benchmarks.rows import files_digest, find_file, read_rows, row_number
from lemur_ray.benchmarks.sandboxed import PROGRAM_S
from lemur_ray.storage.bundles.host_path import HostPath

REQUEST = "Answer the question with one SQLite query and nothing else."
SOURCES = SETS["spider"]


@dataclass(frozen=True)
class SpiderOptions(OneProtocol):
    """Command-line options of Spider: the number of worked examples."""

    shots: int = 0
    """Number of worked examples: questions of the training set, each of another database, with its tables."""

    def __post_init__(self) -> None:
        if self.shots < 0:
            raise ValueError(f"--shots {self.shots}: expected 0 or more")


def _load(options: SpiderOptions, request: EvaluationRequest) -> Iterator[Task]:
    home = home_of(request.data_folder("what Spider asks"))
    path = find_file(home, NAMES, SOURCE)
    rows = list(read_rows(path, ("db_id", "question", "query")))
    files = {name: files_of(home, name) for name in {row["db_id"] for row in rows}}
    tables = {name: described(of[0]) for name, of in files.items()}
    examples, used = _examples(home, options.shots)
    data_id = files_digest(path, *used, *(file for name in sorted(files) for file in files[name]))
    for place, row in enumerate(rows):
        name = row["db_id"]
        prefix = "SELECT" if options.raw or options.prefill else ""
        details = QuestionDetails(
            f"{examples}{tables[name]}\n\n", options.raw, "SELECT" if prefix and not options.raw else "",
            stop=(";", "\n\n") if prefix else (), gold=row["query"][len(prefix) :], data=data_id, cluster=name,
        )  # fmt: skip
        prompt = f"-- Question: {row['question']}"
        prompt += f"\n-- {REQUEST}\nSELECT" if options.raw else f"\n\n{REQUEST}"
        reference = {"databases": [HostPath(file) for file in files[name]], "query": row["query"], "begins": prefix}
        task, grade = f"spider/{row_number(row, place)}", "envs.programs.spider.execution:grade"
        yield question("spider", task, hardness(row["query"]), prompt, grade, reference, details)


def _examples(home: Path, count: int) -> tuple[str, list[Path]]:
    """Worked examples, the first question of each of the first ``count`` databases of the training set, and the files
    that they come from. Raises FileNotFoundError if the training set is missing, ValueError if it has too few."""
    if not count:
        return "", []
    path = find_file(home, TRAIN, SOURCE)
    firsts: dict[str, Mapping[str, Any]] = {}
    for row in read_rows(path, ("db_id", "question", "query")):
        firsts.setdefault(row["db_id"], row)
        if len(firsts) == count:
            break
    if len(firsts) < count:
        raise ValueError(f"--shots {count}: {path} has {len(firsts)} databases")
    files = {name: files_of(home, name)[0] for name in firsts}
    parts = (
        f"{described(files[name])}\n\n-- Question: {row['question']}\n{row['query'].rstrip(';')};\n\n"
        for name, row in firsts.items()
    )
    return "".join(parts), [path, *files.values()]


_PROTOCOL = column_protocol("spider", options=SpiderOptions)
BENCHMARKS = {
    "": Benchmark(
        SpiderOptions, _load, {"full": 256, "brief": 256}, identity=single_protocol_identity,
        version=3,  # a query between sentences or in JSON; shots are questions of the training set
        needs=first_task_loads(_load), min_step_s=PROGRAM_S, sources=SOURCES, has_hints=True,
        details=BenchmarkDetails("1034", file_patterns=tuple(DEV), protocol=_PROTOCOL),
    )
}  # fmt: skip
