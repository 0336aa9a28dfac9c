"""How much of a host an actor asks for: what its episodes take, so that hosts are brought where they lack.

A single host that is the driver's own is shared as it is where nobody brings another: there is nothing to choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.benchmarks.resource_request import PROCESS, Resources

MINIMAL = Resources(PROCESS.cpus, 0)
"""What actors ask for on a single host: they share it, however much they take."""


def actor_resources(
    episodes: int,
    each: Resources,
    nodes: Sequence[Mapping[str, Any]],
    own_node: str,
    cpus: float = 0.0,
    *,
    grows: bool = False,
) -> Resources:
    """What an actor with so many ``episodes`` asks for.

    ``nodes``: as ``ray.nodes()`` has them. ``own_node``: of this process. ``cpus``: what was asked for; 0: by need.
    ``grows``: whether the cluster brings hosts by itself.
    No more than the largest host with processors has, where there is one: an actor that fits nowhere never runs.
    """
    needs = PROCESS + each * episodes
    if cpus:
        return Resources(cpus, needs.memory_bytes)
    hosts = {node["NodeID"]: node["Resources"] for node in nodes if node["Alive"] and node["Resources"].get("CPU")}
    if hosts.keys() == {own_node} and not grows:
        return MINIMAL
    if not hosts:
        return needs
    most = Resources(
        max(float(has["CPU"]) for has in hosts.values()), max(int(has.get("memory", 0)) for has in hosts.values())
    )
    return needs.minimum(most)
