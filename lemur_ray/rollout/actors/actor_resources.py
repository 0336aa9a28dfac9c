"""CPUs and memory that an actor requests from Ray: sums over its episodes, so that an autoscaler adds enough."""

from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.benchmarks.resource_request import PROCESS, Resources

MINIMAL = Resources(PROCESS.cpus, 0)
"""Request of an actor on a single host without autoscaling: all actors share it, whatever their episodes need."""


def actor_resources(
    episodes: int,
    each: Resources,
    nodes: Sequence[Mapping[str, Any]],
    own_node: str,
    cpus: float = 0.0,
    *,
    grows: bool = False,
) -> Resources:
    """CPUs and memory to request from Ray for an actor that plays ``episodes`` at a time, each of which needs ``each``.
    At most the size of the largest live host with CPUs, because a larger actor would never start. On a cluster of this
    host alone that does not grow, the request is minimal. ``nodes``: as ``ray.nodes()`` returns them. ``own_node``:
    node id of this process. ``cpus``: by the user; 0: computed. ``grows``: whether the cluster autoscales."""
    needs = PROCESS + each * episodes
    if cpus:
        return Resources(cpus, needs.memory_bytes)
    hosts = {node["NodeID"]: node["Resources"] for node in nodes if node["Alive"] and node["Resources"].get("CPU")}
    if hosts.keys() == {own_node} and not grows:
        return MINIMAL
    if not hosts:
        return needs
    largest = Resources(
        max(float(has["CPU"]) for has in hosts.values()), max(int(has.get("memory", 0)) for has in hosts.values())
    )
    return needs.minimum(largest)
