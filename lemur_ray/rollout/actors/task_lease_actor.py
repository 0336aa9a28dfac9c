"""The leases of a run whose actors are on several hosts: an actor on the cluster's head keeps them in files there.

Whatever plays on the cluster asks that host, other runs too, so that its kernel keeps all of them apart. What a dead
process held is given back by ``forget``; what a dead keeper held, by the kernel: who played on it learns of it before
its episode counts (``is_held``). Notes outlive all of them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lemur_ray.agents.task_leases import FileLease, FileLeases, LeasesLost
from lemur_ray.host.home import lemur_home
from lemur_ray.rollout.endpoints.endpoint_gate import process_name

ANSWER_S = 60.0
MANY = 10_000
"""Questions that may be open at once."""
COMMANDS = 256
"""Commands that may run at once."""
_HEAD = "node:__internal_head__"


class _LeaseActor:
    """The inside of the actor. Async: one thread for everything but commands."""

    def __init__(self, folder: str) -> None:
        """``folder``: empty for the home of the host that it is on."""
        self._files = FileLeases(Path(folder) if folder else lemur_home())
        self._held: dict[str, dict[str, FileLease]] = {}
        self._gone: set[str] = set()
        self._commands = ThreadPoolExecutor(COMMANDS)

    async def take(self, by: str, ticket: str, names: Sequence[str]) -> str:
        """The name; empty where all are held, or whoever asks is gone."""
        held = None if by in self._gone else self._files.take(names)
        if held is None:
            return ""
        self._held.setdefault(by, {})[ticket] = held
        return held.name

    async def holds(self, by: str, ticket: str) -> bool:
        return ticket in self._held.get(by, {})

    async def give_back(self, by: str, ticket: str) -> None:
        held = self._held.get(by, {}).pop(ticket, None)
        if held is not None:
            held.give_back()

    async def forget(self, by: str) -> None:
        """The process is gone, with everything that it held."""
        self._gone.add(by)
        for held in self._held.pop(by, {}).values():
            held.give_back()

    async def note(self, name: str, text: str | None) -> str | None:
        return self._files.note(name, text)

    async def run(self, command: Sequence[str], limit_s: float) -> tuple[int, str]:
        return await asyncio.get_running_loop().run_in_executor(self._commands, self._files.run, command, limit_s)


class RemoteLeases:
    """``leases.Leases`` in any process of the cluster."""

    def __init__(self, lease_actor: Any) -> None:
        self._lease_actor = lease_actor

    def take(self, names: Sequence[str]) -> RemoteLease | None:
        held = RemoteLease(self._lease_actor, process_name(), secrets.token_hex(8))
        try:
            held.name = _answer(self._lease_actor.take.remote(held.by, held.ticket, list(names)))
        except LeasesLost:
            held.give_back()  # it may have been taken after all
            raise
        return held if held.name else None

    def note(self, name: str, text: str | None = None) -> str | None:
        found: str | None = _answer(self._lease_actor.note.remote(name, text))
        return found

    def run(self, command: Sequence[str], limit_s: float) -> tuple[int, str]:
        status, said = _answer(self._lease_actor.run.remote(list(command), limit_s), ANSWER_S + limit_s)
        return status, said


class RemoteLease:
    """What a keeper holds for this process; ``leases.Held``."""

    def __init__(self, lease_actor: Any, by: str, ticket: str) -> None:
        self._lease_actor, self.by, self.ticket = lease_actor, by, ticket
        self.name = ""

    def is_held(self) -> bool:
        return bool(_answer(self._lease_actor.holds.remote(self.by, self.ticket)))

    def give_back(self) -> None:
        self._lease_actor.give_back.remote(self.by, self.ticket)


def _answer(ref: Any, limit_s: float = ANSWER_S) -> Any:
    """Raises LeasesLost."""
    try:
        return ray.get(ref, timeout=limit_s)
    except ray.exceptions.RayError as error:
        said = (str(error).strip().splitlines() or [""])[-1]
        raise LeasesLost(f"the actor that keeps leases: {type(error).__name__}: {said[:300]}") from error


def start_lease_actor() -> Any:
    """A keeper on the head of the cluster, or beside this process where none is known; ends with this process."""
    own = ray.get_runtime_context().get_node_id()
    heads = [node["NodeID"] for node in ray.nodes() if node["Alive"] and _HEAD in node["Resources"]]
    at = heads[0] if heads else own
    there = NodeAffinitySchedulingStrategy(at, soft=False)
    options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": MANY, "scheduling_strategy": there}
    return ray.remote(_LeaseActor).options(**options).remote(str(lemur_home()) if at == own else "")
