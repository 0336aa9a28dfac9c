"""Reads a Harbor task folder: its instruction, and from ``task.toml`` limits, resources and network.

Accepts old and new spellings (``memory = "4G"`` and ``memory_mb``, ``allow_internet`` and ``network_mode``).
Unsupported features (``NOT_PLAYED``, several containers, several steps, variables of this machine) are rejected. Runs
nothing.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE, INSTRUCTION, DOCKERFILE = "task.toml", "instruction.md", "environment/Dockerfile"
TESTS, SOLUTION = "tests", "solution"
OLDER_FILE = "task.yaml"
"""File of the older format of terminal-bench"""
NOT_PLAYED = ("gpus", "tpu", "mcp_servers", "healthcheck", "workdir")
"""Entries of ``environment`` that a task cannot have here, unless they are empty"""
NETWORKS = ("public", "no-network", "allowlist")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", re.I)
_MIB = {"": 2**-20, "K": 2**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20}


@dataclass(frozen=True)
class TaskFolder:
    """A Harbor task, as described by its folder: instruction, container image, limits (seconds, MiB, CPUs), network
    access, users and environment variables. Prefixes: agent (the policy's turns), tests (the verifier), solution."""

    path: Path
    instruction: str
    """Text of the task for the policy."""
    category: str
    """``metadata.category``, or "task"."""
    image: str
    """Image in a registry, preferred to a Dockerfile as upstream does. Empty: build environment/Dockerfile."""
    build_s: float
    """Time limits: of building the image, of the policy, of the tests."""
    agent_s: float
    tests_s: float
    memory_mb: float
    cpus: float
    policy_network: bool | None
    """Whether the policy may use a network, and (``tests_network``) whether the tests may; None if not specified."""
    tests_network: bool | None
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the container; ``tests_env`` and ``solution_env`` are added for tests and solution."""
    agent_user: str = ""
    """User who runs the policy's commands, and (``tests_user``) the tests; empty: the image's."""
    tests_user: str = ""
    tests_env: Mapping[str, str] = field(default_factory=dict)
    solution_env: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_solution(self) -> bool:
        """Whether the folder has a reference solution."""
        return (self.path / SOLUTION / "solve.sh").is_file()


def folders(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield (id, path) of the task folders at or below a path, sorted. Raises ValueError if there is none."""
    if (path / FILE).is_file():
        yield path.resolve().name, path
        return
    paths = sorted(file.parent for file in path.rglob(FILE)) if path.is_dir() else []
    if not paths:
        older = next(path.rglob(OLDER_FILE), None) if path.is_dir() else None
        advice = "give a task folder, or a folder of them"
        if older is not None:
            advice = (
                f"{older} is terminal-bench's older format: harbor task migrate -i {path} -o OUT (pip install harbor)"
            )
        raise ValueError(f"harbor:{path}: no {FILE} there or beneath; {advice}")
    yield from ((folder.relative_to(path).as_posix(), folder) for folder in paths)


def read(path: Path) -> TaskFolder:
    """Read and check a task folder. Raises ValueError that names the folder or file and the fault."""
    for name in (FILE, INSTRUCTION, f"{TESTS}/test.sh"):
        if not (path / name).is_file():
            raise ValueError(f"{path}: {name} is not there")
    try:
        fields = tomllib.loads((path / FILE).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}/{FILE}: not TOML: {error}") from error
    environment, agent, verifier = (_table(path, fields, name) for name in ("environment", "agent", "verifier"))
    if fields.get("steps") or (path / "steps").is_dir():
        raise ValueError(f"{path}: a task of several steps; only those of one step can be played")
    if composed := [file.name for file in (path / "environment").glob("docker-compose.y*ml")]:
        raise ValueError(f"{path}/environment/{composed[0]}: several containers; only one Dockerfile can be played")
    if verifier.get("environment_mode") == "separate":
        raise ValueError(f"{path}: tests in an environment of their own; only those in the task's own can be run")
    if asked := [name for name in NOT_PLAYED if environment.get(name)]:
        raise ValueError(f"{path}/{FILE}: environment.{asked[0]} = {environment[asked[0]]!r}: cannot be played here")
    if collect := verifier.get("collect"):
        raise ValueError(f"{path}/{FILE}: verifier.collect = {collect!r}: cannot be played here")
    if (system := str(environment.get("os") or "linux")) != "linux":
        raise ValueError(f"{path}/{FILE}: environment.os = {system!r}: only linux can be played here")
    image = str(environment.get("docker_image") or "")
    if not (path / DOCKERFILE).is_file() and not image:
        raise ValueError(f"{path}: {DOCKERFILE} is not there, and environment names no docker_image")
    return TaskFolder(
        path=path,
        instruction=(path / INSTRUCTION).read_text(encoding="utf-8").strip(),
        category=str(_table(path, fields, "metadata").get("category") or "task"),
        image=image,
        build_s=_positive(path, environment, "build_timeout_sec", 600.0),
        agent_s=_positive(path, agent, "timeout_sec", 600.0),
        tests_s=_positive(path, verifier, "timeout_sec", 600.0),
        memory_mb=_mebibytes(path, environment),
        cpus=_positive(path, environment, "cpus", 1.0),
        policy_network=_network(path, agent, environment),
        tests_network=_network(path, verifier, environment),
        env=_variables(path, environment),
        agent_user=str(agent.get("user") or ""),
        tests_user=str(verifier.get("user") or ""),
        tests_env=_variables(path, verifier),
        solution_env=_variables(path, _table(path, fields, "solution")),
    )


def _table(path: Path, fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"{path}/{FILE}: {name} is {value!r}, expected a table [{name}]")
    return value


def _positive(path: Path, table: Mapping[str, Any], name: str, otherwise: float) -> float:
    value = table.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e7:
        raise ValueError(f"{path}/{FILE}: {name} = {value!r}, expected a number above 0")
    return float(value)


def _network(path: Path, phase: Mapping[str, Any], environment: Mapping[str, Any]) -> bool | None:
    """Network access of a phase (policy or tests): its own setting, else the environment's; None without either. A
    list of hosts, which cannot be enforced here, means no access."""
    mode = phase.get("network_mode") or environment.get("network_mode")
    if mode is None:
        internet = environment.get("allow_internet")
        return internet if isinstance(internet, bool) else None
    if mode not in NETWORKS:
        raise ValueError(f"{path}/{FILE}: network_mode = {mode!r}, expected one of {', '.join(NETWORKS)}")
    return bool(mode == "public")


def _mebibytes(path: Path, environment: Mapping[str, Any]) -> float:
    if "memory_mb" in environment or "memory" not in environment:
        return _positive(path, environment, "memory_mb", 2048.0)
    match = _SIZE.fullmatch(str(environment["memory"]).strip())
    if match is None or not float(match[1]):
        raise ValueError(f"{path}/{FILE}: memory = {environment['memory']!r}, expected a size such as 4G")
    return float(match[1]) * _MIB[match[2].upper()]


def _variables(path: Path, table: Mapping[str, Any]) -> dict[str, str]:
    variables = {str(name): str(value) for name, value in dict(table.get("env") or {}).items()}
    for name, value in variables.items():
        if "${" in value:
            raise ValueError(
                f"{path}/{FILE}: env {name} = {value!r} asks for a variable of this machine, which no container of a "
                "policy is given; write the value into a copy of the task, if it is no secret"
            )
    return variables
