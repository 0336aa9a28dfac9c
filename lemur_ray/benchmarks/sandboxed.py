"""For benchmarks that run a model's code: option and requirement of a sandbox, programs that it lacks."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.needs import Requirement, first_task_loads
from lemur_ray.doctor.machine import Machine
from lemur_ray.doctor.programs import bubblewrap, docker
from lemur_ray.host.renamed_names import renamed_names
from lemur_ray.sandbox.backends import docker_image
from lemur_ray.sandbox.backends.docker_image import PLAIN
from lemur_ray.sandbox.sandbox import SandboxError, SandboxSpec, open_sandbox

SandboxName = Literal["bwrap", "docker"]
PROGRAM_S = 60.0
"""``Benchmark.min_step_s``, in seconds, for a model's program and its tests: at most 45 s by the limits of
``grading/python_tests.py``, plus the start of its sandboxes."""
COMMAND_S = 30.0
"""``Benchmark.min_step_s`` for a command of at most 10 s, after which the file tree is read."""
QUERY_S = 20.0
"""``Benchmark.min_step_s`` for a query of at most 10 s, whose process is ended within a few seconds more."""
_CHECKS = {"bwrap": bubblewrap, "docker": docker}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Sandboxed:
    """Options of benchmarks that run a model's code."""

    sandbox: SandboxName = "bwrap"
    """Where code of a model runs: bubblewrap, or a Docker engine on each actor's machine (docs/guides/sandbox.md)."""


def in_sandbox(tasks: Iterable[Task], options: Sandboxed) -> Iterator[Task]:
    """Yield the tasks with the chosen sandbox backend added to their options, as ``backend``."""
    for task in tasks:
        yield replace(task, options={**task.options, "backend": options.sandbox})


def sandbox_requirement(options: Sandboxed, image: str = PLAIN) -> Requirement:
    """The requirement that the sandbox backend of ``options`` works on this machine; its check opens a sandbox.
    ``image``: folder of ``cluster/images`` whose Docker image must have been built."""
    environment = tuple(os.environ.get(name, "") for name in ("PATH", "DOCKER_HOST"))
    return Requirement(f"sandbox {options.sandbox}", lambda: _unusable(options.sandbox, image, environment))


def first_task_loads_in_sandbox(
    load: Callable[[Any, Any], Iterable[Task]], image: str = PLAIN
) -> Callable[[Any, Any], Sequence[Requirement]]:
    """A function for ``Benchmark.needs``: the first task can be loaded, and the sandbox works. ``image``: folder of its
    Docker image."""
    reads = first_task_loads(load)
    return lambda options, request: (*reads(options, request), sandbox_requirement(options, image))


@cache
def _unusable(backend: SandboxName, image: str, environment: tuple[str, ...]) -> str | None:
    """The problem with the sandbox and its remedy; None if it works. ``environment``: only a key of the cache."""
    check = _CHECKS[backend](Machine(Path(__file__).resolve().parents[2]))
    problem = f"sandbox {backend}: {check.found}: {check.fix}"
    if backend == "docker":  # a missing image would be built by the first sandbox, which takes minutes
        if check.status == "missing" or (check.status != "ok" and image == PLAIN):
            return problem
        if _image(image) is None:
            lacks = f"{check.found}, which is of an earlier list of packages" if image == PLAIN else f"no image {image}"
            return f"sandbox docker: {lacks}: {build_command(image)}"
    try:
        sandbox = open_sandbox(SandboxSpec(image=image, run="preflight"), backend)
    except SandboxError as error:
        return problem if check.status == "missing" else f"sandbox {backend}: {error}"
    try:
        done = sandbox.exec(["/bin/true"])
        return None if done.ok else f"sandbox {backend}: it runs no program ({done.note or done.err[:200]})"
    finally:
        sandbox.close()


def rebuild_hint(options: Sandboxed, image: str = PLAIN) -> str:
    """Text after the command that installs a package: ", then <build command>" under Docker, else empty."""
    return f", then {build_command(image)}" if options.sandbox == "docker" else ""


def build_command(image: str = PLAIN) -> str:
    """The shell command that builds an image of the Docker sandbox."""
    return "python -m lemur_ray.sandbox.docker_image" + ("" if image == PLAIN else f" {image}")


def _image(name: str) -> docker_image.Image | None:
    try:
        return docker_image.existing(name)
    except SandboxError:
        return None


def missing_programs(
    options: Sandboxed, programs: Mapping[str, str], rootfs: str = "", image: str = PLAIN
) -> dict[str, str]:
    """Those of ``programs`` (name or absolute path -> Debian package) that the sandbox lacks; empty if it has all, or
    its Docker image is not built. ``rootfs``: root folder that bubblewrap uses, empty for this machine's; ``image``:
    name of the Docker image."""
    if options.sandbox == "docker":
        built = _image(image)
        if built is None:
            return {}
        there = set(docker_image.packages(image)) - built.lacks
        return {program: package for program, package in programs.items() if package not in there}
    places = ":".join(f"{rootfs.rstrip('/')}{place}" for place in _PATH.split(":"))

    def absent(name: str) -> bool:
        return not Path(f"{rootfs}{name}").exists() if name.startswith("/") else shutil.which(name, path=places) is None

    return {program: package for program, package in programs.items() if absent(program)}


def missing_programs_departure(options: Sandboxed, programs: Mapping[str, str], rootfs: str = "") -> tuple[str, ...]:
    """A departure, with the install command, if the sandbox lacks some of the original's ``programs``; else empty."""
    absent = missing_programs(options, programs, rootfs)
    if not absent:
        return ()
    packages = " ".join(sorted(set(absent.values())))
    return (f"sandbox without {', '.join(sorted(absent))} (apt-get install -y {packages}{rebuild_hint(options)})",)


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, begins_in_sandbox="first_task_loads_in_sandbox", lacking_programs="missing_programs",
        without="missing_programs_departure", rebuilt="rebuild_hint", sandbox_need="sandbox_requirement",
    )  # fmt: skip
