"""Whether a cluster has an autoscaler, according to the status that its autoscaler last published. Knows no Ray.

Every head runs a monitor that publishes a status. On a head that was started by hand, it invents a node type for each
node. A version 2 autoscaler names the types of the nodes that it launched.
"""

from __future__ import annotations

import json
from typing import Any

_BY_HAND = "node_"
"""Prefix of the type of a node that no autoscaler launched (Ray 2.60)."""


def autoscales_v1(status: bytes | None) -> bool:
    """``status``: JSON that the monitor stores in the head's key-value store, None if there is none."""
    try:
        value: Any = json.loads(status or b"{}")
    except ValueError:
        return False
    report = value.get("autoscaler_report") if isinstance(value, dict) else None
    active = report.get("active_nodes") if isinstance(report, dict) else None
    return any(not kind.startswith(_BY_HAND) for kind in active or {})


def autoscales_v2(status: Any) -> bool:
    """``status``: the head's ``GetClusterStatusReply``."""
    named = any(node.ray_node_type_name for node in status.cluster_resource_state.node_states)
    return named and status.autoscaling_state.autoscaler_state_version > 0
