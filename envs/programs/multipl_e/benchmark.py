"""MultiPL-E (Cassano et al. 2022, arXiv 2208.08227): ``multipl_e/<language>``, tasks ``multipl_e/<language>/<name>``.

HumanEval's prompts in another language, unchanged. A completion up to the item's stops is compiled with its tests and
run in a sandbox. The paper publishes no protocol for it, so this one is the project's. Data below ``DATA``:
``multipl_e/humaneval-<language>`` as JSON lines or parquet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from envs.programs.multipl_e import typescript
from envs.programs.multipl_e.program import IMAGE
from envs.programs.multipl_e.toolchains import DEFAULT, JAVATUPLES, TOOLCHAINS, TSC
from envs.programs.multipl_e.typescript import COMMAND
from envs.published_protocols import column_protocol
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest, file_option
from lemur_ray.benchmarks.needs import Requirement
from lemur_ray.benchmarks.protocol_options import OneProtocol, single_protocol_identity
from lemur_ray.benchmarks.question import QuestionDetails, question
from lemur_ray.benchmarks.resource_request import PROGRAMS
from lemur_ray.benchmarks.rows import files_digest, find_file, read_rows
from lemur_ray.benchmarks.sandboxed import (
    PROGRAM_S,
    Sandboxed,
    first_task_loads_in_sandbox,
    missing_programs,
    rebuild_hint,
)
from lemur_ray.outside_data.source import Source
from lemur_ray.storage.bundles.host_path import HostPath

_HUB = "hub:nuprl/MultiPL-E@28441b6024e71d4a1c1c0f6bf171c935cd5a43f2"
_FILE = "test-00000-of-00001.parquet"
REQUEST = "Complete this program in {language}. Reply with its code up to the end of the function.\n\n"


@dataclass(frozen=True)
class MultiplEOptions(OneProtocol, Sandboxed):
    """Command-line options of MultiPL-E: the folder of the library javatuples for Java."""

    javatuples: str = file_option()
    """For Java: a folder with javatuples-1.2.jar, which its programs import. Empty: Debian's package."""


def _load(language: str, options: MultiplEOptions, request: EvaluationRequest) -> Iterator[Task]:
    source = f"MultiPL-E: nuprl/MultiPL-E on the Hub; MIT; python jobs/fetch_data.py multipl_e/{language}"
    path = find_file(request.data_folder("what MultiPL-E asks"), _files(language), source)
    data_id, shown = files_digest(path), _mounted_folders(language, options)
    for row in read_rows(path):
        goes_on = options.raw or options.prefill
        details = QuestionDetails(
            raw=options.raw, prefill=row["prompt"] if options.prefill and not options.raw else "",
            stop=tuple(row["stop_tokens"]) if goes_on else (), backend=options.sandbox, data=data_id,
            cluster=row["name"],
        )  # fmt: skip
        reference = {"language": language, "prompt": row["prompt"], "tests": row["tests"]}
        reference |= {"stops": list(row["stop_tokens"]), **shown}
        prompt = row["prompt"] if options.raw else REQUEST.format(language=language) + row["prompt"]
        name, grade = f"multipl_e/{language}", "envs.programs.multipl_e.program:grade"
        yield question(name, f"{name}/{row['name']}", language, prompt, grade, reference, details)


def _mounted_folders(language: str, options: MultiplEOptions) -> dict[str, HostPath]:
    """Folders of this host that sandboxes mount, by option name: javatuples, typescript."""
    folders = {"javatuples": options.javatuples, "typescript": typescript.installed() if language == "ts" else None}
    return {name: HostPath(folder) for name, folder in folders.items() if folder}


def _files(language: str) -> list[str]:
    name = f"humaneval-{language}"
    folders = ("multipl_e", "MultiPL-E", "bench/multipl_e")
    return [f"{folder}/{file}" for folder in folders for file in (f"{name}.jsonl", f"{name}/{_FILE}")]


def _needs(language: str, options: MultiplEOptions, request: EvaluationRequest) -> list[Requirement]:
    return [
        *first_task_loads_in_sandbox(partial(_load, language), IMAGE)(options, request),
        Requirement("tool chain", partial(_without_tools, language, options)),
    ]


def _without_tools(language: str, options: MultiplEOptions) -> str | None:
    wanted = {name: of for name, of in TOOLCHAINS[language].programs.items() if not _in_folder(name, options)}
    absent = missing_programs(options, wanted, image=IMAGE)
    if not absent:
        return None
    install = f"apt-get install -y {' '.join(sorted(set(absent.values())))}"
    return f"the sandbox has no {', '.join(absent)}: {install}{rebuild_hint(options, IMAGE)}"


def _in_folder(name: str, options: MultiplEOptions) -> bool:
    return (name == JAVATUPLES and bool(options.javatuples)) or (name == TSC and typescript.installed() is not None)


def _departures(
    language: str, options: MultiplEOptions, request: EvaluationRequest, tasks: Sequence[Task]
) -> tuple[str, ...]:
    if language != "ts" or typescript.installed() is not None:
        return ()
    return (f"TypeScript as the sandbox has it, 4.8 in Debian 12, instead of {typescript.pinned()} ({COMMAND})",)


_PROTOCOL = column_protocol("multipl_e", options=MultiplEOptions)
BENCHMARKS = {
    language: Benchmark(
        MultiplEOptions, partial(_load, language), {"full": 512, "brief": 512}, identity=single_protocol_identity,
        version=5,  # no solution changes what its tests check; whole functions with a signature of their own are read
        needs=partial(_needs, language), min_step_s=PROGRAM_S, resources=PROGRAMS,
        sources=(
            Source(
                f"multipl_e/humaneval-{language}/{_FILE}", f"{_HUB}/humaneval-{language}/{_FILE}", "", 83_000, "MIT"
            ),
        ),
        details=BenchmarkDetails(
            departures=partial(_departures, language), file_patterns=tuple(_files(language)), size="about 160",
            protocol=replace(_PROTOCOL, column="MultiPL-E" if language in DEFAULT else "", part=language),
        ),
    )
    for language in TOOLCHAINS
}  # fmt: skip
