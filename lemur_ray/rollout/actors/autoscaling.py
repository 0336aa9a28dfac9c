"""Whether a Ray cluster has an autoscaler, from the status that its head publishes. Does not import Ray.

Every head runs a monitor that publishes a status. On a head that was started by hand, the monitor invents a node type
for each node. A version 2 autoscaler lists the types of the nodes that it launched."""

import json
from typing import Any

_BY_HAND = "node_"
"""Prefix of the invented node types, of nodes that no autoscaler launched (Ray 2.60)."""


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
