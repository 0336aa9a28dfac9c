"""What InterCode's benchmarks need of a machine, and which tools of upstream's images this machine's sandbox lacks.

Which tools those are stands where the doctor looks for them, too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from envs.outside_data import SOURCES, required
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Asked
from lemur_ray.benchmarks.needs import LOOK_S, Need, there
from lemur_ray.benchmarks.sandboxed import Sandboxed, sandbox_need, without
from lemur_ray.doctor import sandbox_tools

DATA = "what InterCode asks"
CRYPTO = "Crypto"
"""The module of pycryptodome, which upstream's image has and which the sandbox is shown of this interpreter."""


def files(kind: str, asked: Asked) -> list[Need]:
    """The data files of a benchmark, each one need with the command that fetches it."""
    if asked.data is None:
        return [there("data", partial(asked.outside, DATA))]
    grading = asked.recording is not None and asked.mode == "grading"
    names = [source.path for source in SOURCES[f"intercode/{kind}"] if not (grading and source.stored == "tar")]
    return [there(name, partial(required, asked.data, name)) for name in names]


def sandboxed(kind: str, options: Sandboxed, asked: Asked) -> list[Need]:
    """Data and a sandbox; nothing is run where recorded submissions are graded."""
    nothing_runs = kind == "ctf" and asked.recording is not None and asked.mode == "grading"
    return [*files(kind, asked), *([] if nothing_runs else [sandbox_need(options)])]


def sql(options: Any, asked: Asked) -> list[Need]:
    """Databases: of files, or on a server that answers. The sample database needs neither."""
    server = options.engine != "sqlite"
    if asked.data is None and not server and asked.recording is None:
        return []
    return [*files("sql", asked), *([there("engine", partial(_connected, options.engine))] if server else [])]


def _connected(engine: str) -> None:
    """Raises ConnectionError, ValueError, or ModuleNotFoundError that says what is to be installed."""
    from envs.intercode.sql.mysql_engine import ServerUrl

    ServerUrl.parse(engine).connect(connect_s=LOOK_S).close()


def bash_departures(options: Any, asked: Asked, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Programs that its golds and models may call."""
    return without(options, sandbox_tools.BASH, options.rootfs)


def ctf_departures(options: Sandboxed, asked: Asked, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Programs and the Python package that challenges are solved with; none where nothing is run."""
    if asked.recording is not None and asked.mode == "grading":
        return ()
    module = () if importlib.util.find_spec(CRYPTO) else ("sandbox without pycryptodome (the extra ctf)",)
    return (*without(options, sandbox_tools.CTF), *module)


def question(task: Task) -> str:
    """What every environment of InterCode shows first, among other things."""
    return str(task.options.get("question", ""))


def needs_of(kind: str) -> Callable[[Any, Asked], list[Need]]:
    return partial(sandboxed, kind)
