"""Benchmarks named by scheme: ``gym:module:Id`` for Gymnasium text environments, ``harbor:PATH`` for task folders."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from envs.foreign.gym_env import make_env
from envs.foreign.harbor.benchmark import harbor
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest
from lemur_ray.benchmarks.rows import content_digest
from lemur_ray.storage.bundles.host_path import mark_host_paths, replace_paths_by_digest

ENV_ID = "envs:lemur/Foreign-v0"


@dataclass(frozen=True)
class GymOptions:
    """Command-line options of ``gym:`` benchmarks: ``arguments`` of the environment's constructor (JSON), number of
    seeds (one task each), maximum turns, and the sum of rewards from which an episode counts as solved."""

    arguments: str = "{}"
    """JSON object of arguments for the environment's constructor. Absolute paths that exist here are copied to other
    hosts, and their content is part of the evaluation's identity; relative paths are ordinary texts."""
    seeds: int = 100
    """Number of tasks; task i resets the environment with seed i, from 0."""
    turns: int = 0
    """Maximum turns of an episode. 0: as registered by the environment, else 50."""
    solved_at: float = 1.0
    """Sum of rewards from which an episode counts as solved, if the environment does not report success."""

    def __post_init__(self) -> None:
        """Check the options. Raises ValueError that names the option."""
        if self.seeds < 1 or self.turns < 0 or not self.solved_at > 0:
            raise ValueError(
                f"--seeds {self.seeds}, --turns {self.turns}, --solved-at {self.solved_at}: expected seeds of 1 or "
                "more, turns of 0 or more, and a sum above 0"
            )
        self.parsed()

    def parsed(self) -> Mapping[str, Any]:
        """``arguments`` as a dict. Raises ValueError if they are no JSON object."""
        try:
            value = json.loads(self.arguments)
        except ValueError as error:
            raise ValueError(f"--arguments {self.arguments!r}: {error}; expected a JSON object") from error
        if not isinstance(value, dict):
            raise ValueError(f"--arguments {self.arguments!r}: expected a JSON object")
        return value


def _gym_tasks(env_id: str, options: GymOptions, request: EvaluationRequest) -> Iterator[Task]:
    env = make_env(env_id, options.parsed())
    turns = options.turns or (env.spec.max_episode_steps if env.spec else None) or 50
    env.close()
    arguments = mark_host_paths(dict(options.parsed()))  # no type tells which arguments are paths
    shared = {"id": env_id, "arguments": arguments, "solved_at": options.solved_at, "max_steps": turns}
    for seed in range(options.seeds):
        yield Task(f"gym:{env_id}", f"seed-{seed}", ENV_ID, env_id.rpartition(":")[2], {**shared, "seed": seed}, turns)


def _gym(env_id: str) -> Benchmark[GymOptions]:
    def identity(options: GymOptions, request: EvaluationRequest) -> dict[str, Any]:
        arguments = replace_paths_by_digest(dict(options.parsed()), content_digest)
        return {"arguments": arguments, "turns": options.turns, "solved_at": options.solved_at}

    return Benchmark(GymOptions, partial(_gym_tasks, env_id), {"full": 512, "brief": 512}, identity=identity)


BENCHMARKS: Mapping[str, Benchmark[Any]] = {}
"""Benchmarks with a fixed name: none here."""
SCHEMES: Mapping[str, Callable[[str], Benchmark[Any]]] = {"gym": _gym, "harbor": harbor}
"""Scheme (the part of a benchmark's name before its first colon) -> factory that takes the rest of the name."""
