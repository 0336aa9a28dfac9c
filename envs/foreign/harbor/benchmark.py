"""The benchmark ``harbor:PATH``: a task folder of Harbor, or all task folders below a folder."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from envs.foreign.harbor import task_folder
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import Requirement, requirement_of
from lemur_ray.benchmarks.resource_request import PROGRAMS
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription, default_description
from lemur_ray.sandbox.backends import docker_engine
from lemur_ray.sandbox.backends.built_image import content_hash
from lemur_ray.storage.bundles.host_path import HostPath

ENV_ID = "envs:lemur/Harbor-v0"
LIMITS = (
    "The tests of a task run over what the policy left, with programs that it may have changed (it is root): only the "
    "shell that starts them is compared with the image's. Unless the task or --network denies it, they run with a "
    "network.",
    "What the policy left running is ended before the tests begin: a task whose tests ask a running service is not "
    "solved here.",
)


@dataclass(frozen=True)
class HarborOptions:
    """Command-line options of ``harbor:`` benchmarks: maximum turns, seconds for a command, and who may use a
    network."""

    turns: int = 50
    """Maximum turns of an episode. The tests run after the last one as well."""
    command_s: float = 120.0
    """Seconds for one block of commands. All blocks together share the task's own time limit."""
    network: Literal["tests", "format", "none"] = "tests"
    """Phases with network access. tests: the tests, unless the task denies it, and the policy if the task grants it.
    format: also the policy, unless the task denies it, as upstream. none: neither, whatever the task says."""

    def __post_init__(self) -> None:
        """Check the options. Raises ValueError that names them."""
        if self.turns < 1 or not 1 <= self.command_s < 1e7:
            raise ValueError(f"--turns {self.turns}, --command-s {self.command_s:g}: expected 1 or more of each")


def harbor(path: str) -> Benchmark[HarborOptions]:
    """Benchmark of the Harbor task folders at or below ``path``. Reads nothing yet: faults raise when tasks load."""
    folder = Path(path).expanduser().absolute()
    return Benchmark(
        HarborOptions,
        partial(_load, folder),
        {"full": 2048, "brief": 2048},
        version=2,  # tests have a network, and an image that is named goes before a Dockerfile
        needs=_needs,
        resources=PROGRAMS,
        has_hints=True,
        details=BenchmarkDetails(about=_about),
    )


def _load(folder: Path, options: HarborOptions, request: EvaluationRequest) -> Iterator[Task]:
    name = f"harbor:{folder.name}"
    for task_id, path in task_folder.folders(folder):
        task = task_folder.read(path)
        env_options: dict[str, Any] = {"folder": HostPath(path), "database_id": content_hash(path)}
        env_options |= {"command_s": options.command_s, "network": options.network}
        yield Task(name, task_id, ENV_ID, task.category, env_options, options.turns)


def _needs(options: HarborOptions, request: EvaluationRequest) -> tuple[Requirement, ...]:
    def look() -> None:
        with docker_engine.client("a greeting", 10.0) as api:
            api.ping()

    return (requirement_of("sandbox docker", look),)


def _about(run: EvaluationRun) -> RunDescription:
    return replace(default_description(run), limits=LIMITS)
