"""Leases (``agents.task_leases``) for environments on several hosts: a Ray actor on the head holds them as file locks.

All runs on the cluster use that host's locks, so its kernel keeps them apart. Leases of a dead process are
released by ``forget``, those of a dead lease actor by the kernel, so an environment must check ``is_held`` before its
episode counts. Notes outlive both."""

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
"""Deadline of a call of the lease actor, in seconds."""
MANY = 10_000
"""Maximum number of open calls."""
COMMANDS = 256
"""Maximum number of commands that run at once."""
_HEAD = "node:__internal_head__"


class _LeaseActor:
    """The Ray actor's class. Async: one thread serves everything but commands."""

    def __init__(self, folder: str) -> None:
        """``folder``: folder of the lock files; empty: LEMUR_HOME of the actor's host."""
        self._files = FileLeases(Path(folder) if folder else lemur_home())
        self._held: dict[str, dict[str, FileLease]] = {}
        self._gone: set[str] = set()
        self._commands = ThreadPoolExecutor(COMMANDS)

    async def take(self, by: str, ticket: str, names: Sequence[str]) -> str:
        """Lease the first free one of ``names`` for process ``by``; empty if all are taken or ``by`` is gone."""
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
        """Release every lease of the process ``by``, which is gone."""
        self._gone.add(by)
        for held in self._held.pop(by, {}).values():
            held.give_back()

    async def note(self, name: str, text: str | None) -> str | None:
        return self._files.note(name, text)

    async def run(self, command: Sequence[str], limit_s: float) -> tuple[int, str]:
        return await asyncio.get_running_loop().run_in_executor(self._commands, self._files.run, command, limit_s)


class RemoteLeases:
    """Access to the lease actor's leases from any process of the cluster; interface: ``task_leases.Leases``. Each call
    waits up to 60 s and raises LeasesLost if the actor does not answer."""

    def __init__(self, lease_actor: Any) -> None:
        self._lease_actor = lease_actor

    def take(self, names: Sequence[str]) -> "RemoteLease | None":
        lease = RemoteLease(self._lease_actor, process_name(), secrets.token_hex(8))
        try:
            lease.name = _result(self._lease_actor.take.remote(lease.by, lease.ticket, list(names)))
        except LeasesLost:
            lease.give_back()  # the actor may have taken it all the same
            raise
        return lease if lease.name else None

    def note(self, name: str, text: str | None = None) -> str | None:
        note: str | None = _result(self._lease_actor.note.remote(name, text))
        return note

    def run(self, command: Sequence[str], limit_s: float) -> tuple[int, str]:
        status, output = _result(self._lease_actor.run.remote(list(command), limit_s), ANSWER_S + limit_s)
        return status, output


class RemoteLease:
    """A lease that the lease actor holds for this process; interface: ``task_leases.HeldLease``."""

    def __init__(self, lease_actor: Any, by: str, ticket: str) -> None:
        self._lease_actor, self.by, self.ticket = lease_actor, by, ticket
        self.name = ""

    def is_held(self) -> bool:
        return bool(_result(self._lease_actor.holds.remote(self.by, self.ticket)))

    def give_back(self) -> None:
        self._lease_actor.give_back.remote(self.by, self.ticket)


def _result(ref: Any, limit_s: float = ANSWER_S) -> Any:
    """The value of a Ray result, waiting up to ``limit_s`` seconds. Raises LeasesLost without one."""
    try:
        return ray.get(ref, timeout=limit_s)
    except ray.exceptions.RayError as error:
        last_line = (str(error).strip().splitlines() or [""])[-1]
        raise LeasesLost(f"the actor that keeps leases: {type(error).__name__}: {last_line[:300]}") from error


def start_lease_actor() -> Any:
    """Start a Ray actor that holds leases, on the cluster's head, or on this node if no head is known. Returns its
    handle; it ends with this process."""
    own_node = ray.get_runtime_context().get_node_id()
    heads = [node["NodeID"] for node in ray.nodes() if node["Alive"] and _HEAD in node["Resources"]]
    node = heads[0] if heads else own_node
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": MANY, "scheduling_strategy": strategy}
    return ray.remote(_LeaseActor).options(**options).remote(str(lemur_home()) if node == own_node else "")
