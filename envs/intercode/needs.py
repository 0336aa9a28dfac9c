"""Requirements that InterCode's benchmarks check before a run: data files, sandbox, database server and programs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from envs.outside_data import SOURCES, required
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.needs import LOOK_S, Requirement, requirement_of
from lemur_ray.benchmarks.sandboxed import Sandboxed, missing_programs_departure, sandbox_requirement
from lemur_ray.doctor import sandbox_tools

DATA = "what InterCode asks"
CRYPTO = "Crypto"
"""Import name of pycryptodome, which upstream's image has and the sandbox mounts from this interpreter."""


def files(kind: str, request: EvaluationRequest) -> list[Requirement]:
    """One requirement for each data file of a benchmark; a failure names the command that fetches the file."""
    if request.data is None:
        return [requirement_of("data", partial(request.data_folder, DATA))]
    grading = request.recording is not None and request.mode == "grading"
    names = [source.path for source in SOURCES[f"intercode/{kind}"] if not (grading and source.stored == "tar")]
    return [requirement_of(name, partial(required, request.data, name)) for name in names]


def sandboxed(kind: str, options: Sandboxed, request: EvaluationRequest) -> list[Requirement]:
    """Data files and a sandbox. A CTF replay that only grades recorded submissions needs no sandbox."""
    nothing_runs = kind == "ctf" and request.recording is not None and request.mode == "grading"
    return [*files(kind, request), *([] if nothing_runs else [sandbox_requirement(options)])]


def sql(options: Any, request: EvaluationRequest) -> list[Requirement]:
    """Data files and, for a mysql engine, a server that answers. The sample database needs neither."""
    server = options.engine != "sqlite"
    if request.data is None and not server and request.recording is None:
        return []
    return [
        *files("sql", request),
        *([requirement_of("engine", partial(_connected, options.engine))] if server else []),
    ]


def _connected(engine: str) -> None:
    """Connect to a server. Raises ConnectionError, ValueError, or ModuleNotFoundError with the package to install."""
    from envs.intercode.sql.mysql_engine import ServerUrl

    ServerUrl.parse(engine).connect(connect_s=LOOK_S).close()


def bash_departures(options: Any, request: EvaluationRequest, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Departure from upstream: programs missing in the sandbox that gold commands and models may call."""
    return missing_programs_departure(options, sandbox_tools.BASH, options.rootfs)


def ctf_departures(options: Sandboxed, request: EvaluationRequest, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Departures from upstream: programs and Python packages missing in the sandbox; none if nothing is run."""
    if request.recording is not None and request.mode == "grading":
        return ()
    module = () if importlib.util.find_spec(CRYPTO) else ("sandbox without pycryptodome (the extra ctf)",)
    return (*missing_programs_departure(options, sandbox_tools.CTF), *module)


def question(task: Task) -> str:
    """The question in the first observation of an InterCode task."""
    return str(task.options.get("question", ""))


def needs_of(kind: str) -> Callable[[Any, EvaluationRequest], list[Requirement]]:
    return partial(sandboxed, kind)
