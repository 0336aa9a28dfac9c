"""The benchmarks ``intercode/sql``, ``bash``, ``ctf`` and ``python``: options, requirements, tasks."""

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from envs.intercode.recording import RUNS, question_of, read_recording, recorded_tasks, recorded_with
from envs.intercode.run_notes import about, protocol
from envs.intercode.sql.tasks import load_spider_tasks, load_sql_tasks, spider_notes
from envs.intercode.tasks import load_bash_tasks, load_ctf_tasks, load_python_tasks
from envs.outside_data import SOURCES, required
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest, file_option, location_option
from lemur_ray.benchmarks.needs import LOOK_S, Requirement, requirement_of
from lemur_ray.benchmarks.resource_request import COMMANDS, PROGRAMS
from lemur_ray.benchmarks.sandboxed import (
    COMMAND_S,
    PROGRAM_S,
    QUERY_S,
    Sandboxed,
    in_sandbox,
    missing_programs_departure,
    sandbox_requirement,
)
from lemur_ray.doctor import sandbox_tools
from lemur_ray.grading.sql import Reward
from lemur_ray.sandbox import root_file_system

DATA = "what InterCode asks"
CRYPTO = "Crypto"
"""Import name of pycryptodome, which upstream's image has and the sandbox mounts from this interpreter."""


def _files(kind: str, request: EvaluationRequest) -> list[Requirement]:
    """One requirement for each data file of a benchmark; a failure names the command that fetches the file."""
    if request.data is None:
        return [requirement_of("data", partial(request.data_folder, DATA))]
    grading = request.recording is not None and request.mode == "grading"
    names = [source.path for source in SOURCES[f"intercode/{kind}"] if not (grading and source.stored == "tar")]
    return [requirement_of(name, partial(required, request.data, name)) for name in names]


def _needs(kind: str, options: Sandboxed, request: EvaluationRequest) -> list[Requirement]:
    """Data files and a sandbox. A CTF replay that only grades recorded submissions needs no sandbox."""
    nothing_runs = kind == "ctf" and request.recording is not None and request.mode == "grading"
    return [*_files(kind, request), *([] if nothing_runs else [sandbox_requirement(options)])]


def _sql_needs(options: Any, request: EvaluationRequest) -> list[Requirement]:
    """Data files and, for a mysql engine, a server that answers. The sample database needs neither."""
    server = options.engine != "sqlite"
    if request.data is None and not server and request.recording is None:
        return []
    engine = [requirement_of("engine", partial(_connected, options.engine))] if server else []
    return [*_files("sql", request), *engine]


def _connected(engine: str) -> None:
    """Connect to a server. Raises ConnectionError, ValueError, or ModuleNotFoundError with the package to install."""
    from envs.intercode.sql.mysql_engine import ServerUrl

    ServerUrl.parse(engine).connect(connect_s=LOOK_S).close()


def bash_departures(options: Any, request: EvaluationRequest, tasks: Sequence[Task]) -> tuple[str, ...]:
    """How this machine departs from upstream, for reports: a text that names the programs that the sandbox lacks and
    that golds or models may call; empty if it has all."""
    return missing_programs_departure(options, sandbox_tools.BASH, options.rootfs)


def ctf_departures(options: Sandboxed, request: EvaluationRequest, tasks: Sequence[Task]) -> tuple[str, ...]:
    """How this machine departs from upstream, for reports: texts that name programs and packages that the sandbox
    lacks; empty if it has all, or if nothing is run."""
    if request.recording is not None and request.mode == "grading":
        return ()
    module = () if importlib.util.find_spec(CRYPTO) else ("sandbox without pycryptodome (the extra ctf)",)
    return (*missing_programs_departure(options, sandbox_tools.CTF), *module)


@dataclass(frozen=True)
class CodeOptions(Sandboxed):
    """Command-line options of ``intercode/python`` and ``intercode/ctf``: ``compat`` repeats upstream's quirks."""

    compat: bool = False
    """Repeat upstream's quirks, to compare with published numbers."""


@dataclass(frozen=True)
class BashOptions(CodeOptions):
    """Command-line options of ``intercode/bash``: also the root file system of the sandbox."""

    rootfs: str = file_option(root_file_system.digest)
    """Root file system for the sandbox. Empty: /usr of this machine."""

    def __post_init__(self) -> None:
        if self.rootfs and not (Path(self.rootfs) / "usr").is_dir():
            raise ValueError(f"--rootfs {self.rootfs}: no folder with a usr in it; expected a root file system")


def _kind(engine: str) -> str:
    """The kind of a SQL engine, ``sqlite`` or ``mysql``, without its address and password."""
    return engine.partition(":")[0]


def _server_of(kind: str) -> str:
    """Engine option of a command that repeats a run: ``mysql:URL``, since addresses are not recorded; else empty."""
    return f"{kind}:URL" if kind == "mysql" else ""


@dataclass(frozen=True)
class SqlOptions:
    """Command-line options of ``intercode/sql``: kind of reward, whether tables are shown (``handicap``), the SQL
    engine, and upstream's quirks (``compat``)."""

    reward: Reward = "iou"
    """Overlap of rows, or overlap times agreement of order."""
    handicap: bool = False
    """Give the model all tables and columns."""
    engine: str = location_option("sqlite", stored_as=_kind, full_form=_server_of)
    """sqlite, or mysql:URL of a MySQL or MariaDB, for example mysql://user:password@127.0.0.1:3306."""
    compat: bool = False
    """Repeat upstream's quirks, to compare with published numbers."""


def _sql(options: SqlOptions, request: EvaluationRequest) -> list[Task]:
    shared: dict[str, Any] = {"reward": options.reward, "handicap": options.handicap, "prompt": request.prompt}
    if request.data is None:
        if options.engine != "sqlite" or request.recording is not None:
            raise ValueError("a recording, or an engine besides sqlite, needs InterCode's data: say where, --data DIR")
        return load_sql_tasks(**shared)
    server = ""
    if options.engine != "sqlite":
        from envs.intercode.sql.mysql_server import reader_url

        server = reader_url(options.engine, request.data)
    compat = options.compat or request.recording is not None
    return _as_recorded(load_spider_tasks(request.data, server=server, compat=compat, **shared), request)


def _bash(options: BashOptions, request: EvaluationRequest) -> Iterable[Task]:
    return load_bash_tasks(request.data_folder(DATA), compat=options.compat, rootfs=options.rootfs)


def _ctf(options: CodeOptions, request: EvaluationRequest) -> Iterable[Task]:
    # Recorded runs were graded with the published golds, and recorded submissions are graded without running anything.
    recorded = request.recording is not None
    files = not (recorded and request.mode == "grading")
    return load_ctf_tasks(request.data_folder(DATA), compat=options.compat or recorded, files=files)


def _python(options: CodeOptions, request: EvaluationRequest) -> Iterable[Task]:
    # Recorded runs were graded with upstream's faults.
    return load_python_tasks(request.data_folder(DATA), compat=options.compat or request.recording is not None)


Options = TypeVar("Options", bound=CodeOptions)


def _as_recorded(tasks: Iterable[Task], request: EvaluationRequest) -> list[Task]:
    """The tasks of the recording that the request replays, or all tasks if it replays none."""
    if request.recording is None:
        return list(tasks)
    return recorded_tasks(tasks, read_recording(request.recording), request.recording, request.mode)


def _sql_identity(options: SqlOptions, request: EvaluationRequest) -> dict[str, Any]:
    identity = {name: getattr(options, name) for name in ("reward", "handicap", "compat")}
    return {**identity, "engine_kind": _kind(options.engine)}


def _database(task: Task) -> str:
    """Database of a Spider question; questions on one database are not independent. Empty for the sample database."""
    return task.id.split("-")[1] if task.id.startswith("spider-") else ""


def _details(kind: str, **own: Any) -> BenchmarkDetails:
    own = {"recording_format": recorded_with(), "about": partial(about, kind), **own}
    return BenchmarkDetails(opening=question_of, published_runs=RUNS, protocol=protocol(kind), **own)


def _of_programs(
    kind: str, options: type[Options], load: Callable[[Options, EvaluationRequest], Iterable[Task]], **own: Any
) -> Benchmark[Options]:
    """A benchmark whose actions run in a sandbox. ``own``: arguments of its ``BenchmarkDetails``."""
    return Benchmark(
        options,
        lambda options, request: in_sandbox(_as_recorded(load(options, request), request), options),
        {"full": 512, "brief": 512},
        needs=partial(_needs, kind),
        min_step_s=PROGRAM_S if kind == "python" else COMMAND_S,
        resources=PROGRAMS if kind == "python" else COMMANDS,
        has_hints=True,
        sources=SOURCES[f"intercode/{kind}"],
        details=_details(kind, **own),
    )


BENCHMARKS: dict[str, Benchmark[Any]] = {
    "bash": _of_programs(
        "bash", BashOptions, _bash, departures=bash_departures, size="200", settings={"compat": True},
        recording_format=recorded_with(reward_tolerance=0.011),
    ),
    "ctf": _of_programs(
        "ctf", CodeOptions, _ctf, departures=ctf_departures, size="76 (100 with --compat)", settings={"compat": True},
        replay_mode="grading",
    ),
    "python": _of_programs("python", CodeOptions, _python, size="974"),
    "sql": Benchmark(
        SqlOptions,
        _sql,
        {"full": 512, "brief": 96},
        identity=_sql_identity,
        needs=_sql_needs,
        min_step_s=QUERY_S,
        has_hints=True,
        sources=SOURCES["intercode/sql"],
        details=_details("sql", cluster=_database, size="1028 (50 without data)", notes=spider_notes),
    ),
}  # fmt: skip
