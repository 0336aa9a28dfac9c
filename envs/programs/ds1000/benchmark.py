"""DS-1000 (Lai et al. 2022, arXiv 2211.11501): ``ds1000``, tasks ``ds1000/<problem_id>``.

Data below ``DATA``: ``ds1000/ds1000.jsonl`` of xlang-ai/DS-1000 (or the Hub's ``test.jsonl``), packed or not. The paper
of Lemur publishes neither protocol nor script, so both modes are the same: the unchanged prompt, 1,024 tokens up to the
end of the solution, the item's own tests with the libraries that the data was made for. Prompts of the older form have
a gap: a chat model sees the whole prompt, a base model continues the part before the gap."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from envs.outside_data import SETS
from envs.programs.ds1000 import environment
from envs.programs.ds1000.environment import LIBRARIES
from envs.programs.ds1000.program import BEGINS, HOLE, STOPS, around_hole
from envs.published_protocols import column_protocol
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest, location_option
from lemur_ray.benchmarks.needs import Requirement
from lemur_ray.benchmarks.protocol_options import OneProtocol, single_protocol_identity
from lemur_ray.benchmarks.question import QuestionDetails, by_category, question
from lemur_ray.benchmarks.resource_request import PROGRAMS
from lemur_ray.benchmarks.rows import files_digest, find_file, read_rows
from lemur_ray.benchmarks.run_notes import EvaluationRun
from lemur_ray.benchmarks.sandboxed import PROGRAM_S, Sandboxed, first_task_loads_in_sandbox
from lemur_ray.storage.bundles.host_path import HostPath

_NAMES = ("ds1000.jsonl", "test.jsonl", "items.jsonl")
FILES = [f"{folder}/{name}" for folder in ("ds1000", "DS-1000", "bench/ds1000_format") for name in _NAMES]
SOURCE = (
    "DS-1000: test.jsonl of xlangai/DS-1000 on the Hub, or data/ds1000.jsonl.gz of xlang-ai/DS-1000; CC BY-SA 4.0; "
    "python jobs/fetch_data.py ds1000 --accept ds1000"
)
SOURCES = SETS["ds1000"]
REQUEST = (
    "Write the Python code that is missing below, with the indent that it has in its place. "
    "Reply with that code and nothing else, between <code> and </code>.\n\n"
)
_FIELDS = ("prompt", "reference_code", "code_context", "metadata")


@dataclass(frozen=True)
class Ds1000Options(OneProtocol, Sandboxed):
    """Command-line options of DS-1000: which libraries' problems are played, and with which Python environment."""

    libraries: str = ""
    """Libraries whose problems are played, by comma: Pandas, Numpy, Matplotlib, Tensorflow, Scipy, Sklearn, Pytorch.
    Empty: all."""
    environment: str = location_option()
    """Folder of packages, or virtual environment, for the programs. Empty: LEMUR_HOME/environments/ds1000, which
    python -m envs.programs.ds1000.make_environment makes."""

    def __post_init__(self) -> None:
        if unknown := [one for one in self.chosen if one not in LIBRARIES]:
            raise ValueError(f"--libraries {', '.join(unknown)}: expected some of {', '.join(LIBRARIES)}")

    @property
    def chosen(self) -> list[str]:
        """The libraries whose problems are played, by the data's names."""
        return [one.strip() for one in self.libraries.split(",") if one.strip()] or list(LIBRARIES)


def _load(options: Ds1000Options, request: EvaluationRequest) -> Iterator[Task]:
    path = find_file(request.data_folder("what DS-1000 asks"), FILES, SOURCE)
    data_id = files_digest(path)
    for number, row in enumerate(read_rows(path), 1):
        if absent := [name for name in _FIELDS if name not in row]:
            raise ValueError(f"{path}, row {number}: no {', '.join(absent)}; expected DS-1000's {', '.join(_FIELDS)}")
        metadata = row["metadata"]
        if not isinstance(metadata, Mapping) or metadata.get("library") not in LIBRARIES:
            raise ValueError(f"{path}, row {number}: metadata {metadata!r}: expected one of {', '.join(LIBRARIES)}")
        if metadata["library"] in options.chosen:
            yield _task(options, row, metadata, data_id)


def _task(options: Ds1000Options, row: Mapping[str, Any], metadata: Mapping[str, Any], data_id: str) -> Task:
    prompt, library = row["prompt"], metadata["library"]
    begun, behind = around_hole(prompt)
    goes_on = options.raw or options.prefill
    details = QuestionDetails(
        raw=options.raw, prefill=_opening(begun) if options.prefill and not options.raw else "",
        stop=STOPS if goes_on else (), gold=row["reference_code"], backend=options.sandbox, data=data_id,
        cluster=_family(metadata),
    )  # fmt: skip
    reference = {"code_context": row["code_context"], "library": library, "environment": _shipped(options.environment)}
    reference |= {"behind": behind} if behind else {}
    name, asked = f"ds1000/{metadata['problem_id']}", begun if options.raw else REQUEST + prompt
    return question("ds1000", name, library, asked, "envs.programs.ds1000.program:grade", reference, details)


def _family(metadata: Mapping[str, Any]) -> str:
    """Identifier of the question that a problem rewrites; empty without one. Origins are numbered for each library."""
    origin = metadata.get("perturbation_origin_id")
    return "" if origin is None else f"{metadata['library']} {origin}"


def _shipped(named: str) -> str:
    """Environment option of a task. A named folder is copied to other hosts; each host has its own default folder."""
    folder = environment.folder_of(named)
    return HostPath(folder) if named and folder.is_dir() else named


def _opening(prompt: str) -> str:
    """Beginning of a chat model's reply: the prompt's end from the solution's marker, else ``<code>``."""
    marker = max(prompt.rfind(mark) for mark in BEGINS)
    return prompt[marker:] if marker >= 0 else "<code>\n"


def _needs(options: Ds1000Options, request: EvaluationRequest) -> list[Requirement]:
    look = partial(environment.lacking, options.environment, options.chosen)
    return [*first_task_loads_in_sandbox(_load)(options, request), Requirement("environment", look)]


def _departures(options: Ds1000Options, request: EvaluationRequest, tasks: Sequence[Task]) -> tuple[str, ...]:
    holes = sum("behind" in task.options["reference"] for task in tasks)
    how = "asked up to it, without what stands behind it" if options.raw else "shown whole"
    departures = [f"{holes} prompts of the older form, with {HOLE} in the solution's place, {how}"] if holes else []
    return (*departures, *environment.other_versions(options.environment))


def by_library(episodes: Sequence[Episode]) -> dict[str, Any]:
    """{``mean_of_library``: library -> success rate of its scored episodes}; {} if none is scored."""
    rates = {name: fmean(of) for name, of in sorted(by_category(episodes).items())}
    return {"mean_of_library": rates} if rates else {}


def _some_libraries(run: EvaluationRun) -> Sequence[str]:
    return (f"{run.settings['libraries']} alone",) if run.settings.get("libraries") else ()


_DETAILS = BenchmarkDetails(
    "1000", file_patterns=tuple(FILES), departures=_departures, notes=by_library,
    protocol=column_protocol("ds1000", options=Ds1000Options, further=_some_libraries),
)  # fmt: skip
BENCHMARKS = {
    "": Benchmark(
        Ds1000Options, _load, {"full": 1024, "brief": 1024}, identity=single_protocol_identity,
        # 2: a reply ends at "### END SOLUTION" too; 3: Tensorflow is imported where the system has no distutils; 4:
        # what a solution changes in modules is undone before its results are compared.
        version=4,
        needs=_needs, min_step_s=PROGRAM_S, resources=PROGRAMS, sources=SOURCES, has_hints=True, details=_DETAILS,
    )
}  # fmt: skip
