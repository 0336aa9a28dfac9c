"""CPUs and memory that an actor requests from Ray, and whether the cluster has an autoscaler. Does not import Ray.

A request is the sum over the actor's episodes, so that an autoscaler adds enough. Every head runs a monitor that
publishes a status. On a head that was started by hand, the monitor invents a node type for each node. A version 2
autoscaler lists the types of the nodes that it launched."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lemur_ray.benchmarks.resource_request import PROCESS, Resources

MINIMAL = Resources(PROCESS.cpus, 0)
"""Request of an actor on a single host without autoscaling: all actors share it, whatever their episodes need."""
_BY_HAND = "node_"
"""Prefix of the invented node types, of nodes that no autoscaler launched (Ray 2.60)."""


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


def autoscales_v1(status: bytes | None) -> bool:
    """Whether a version 1 autoscaler launched a node. ``status``: JSON in the head's key-value store, or None."""
    try:
        value: Any = json.loads(status or b"{}")
    except ValueError:
        return False
    report = value.get("autoscaler_report") if isinstance(value, dict) else None
    active = report.get("active_nodes") if isinstance(report, dict) else None
    return any(not kind.startswith(_BY_HAND) for kind in active or {})


def autoscales_v2(status: Any) -> bool:
    """Whether a version 2 autoscaler launched a node. ``status``: the head's ``GetClusterStatusReply``."""
    named = any(node.ray_node_type_name for node in status.cluster_resource_state.node_states)
    return named and status.autoscaling_state.autoscaler_state_version > 0
