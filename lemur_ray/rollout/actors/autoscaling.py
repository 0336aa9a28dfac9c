"""Whether a cluster brings hosts by itself, by what its autoscaler last said. Knows no Ray.

Every head has a monitor that says something: on one that was started by hand it names each node a type of its own. Of a
newer autoscaler (v2) nodes bear the names of their types, as it launched them.
"""

from __future__ import annotations

import json
from typing import Any

_BY_HAND = "node_"
"""How the type of a node begins that nobody launched (Ray 2.60)."""


def autoscales_v1(status: bytes | None) -> bool:
    """``status``: JSON that the monitor keeps in the head's store, None where there is none."""
    try:
        found: Any = json.loads(status or b"{}")
    except ValueError:
        return False
    report = found.get("autoscaler_report") if isinstance(found, dict) else None
    active = report.get("active_nodes") if isinstance(report, dict) else None
    return any(not kind.startswith(_BY_HAND) for kind in active or {})


def autoscales_v2(status: Any) -> bool:
    """``status``: ``GetClusterStatusReply``, what the head answers."""
    named = any(node.ray_node_type_name for node in status.cluster_resource_state.node_states)
    return named and status.autoscaling_state.autoscaler_state_version > 0
