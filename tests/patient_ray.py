"""Ray for busy machines: a node whose agents are slow to start comes up all the same."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from lemur_ray.host.ports import free_port

AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
"""As Ray names them, in the arguments of a raylet and in the files where its agents write them down."""


def write_ports_down() -> None:
    """Nodes that this process starts from now on know the ports of their agents beforehand.

    A raylet gives its agents 15 s, hard-coded, to write down their ports, then aborts.
    """
    from ray._private import services

    start_raylet = services.start_raylet
    if hasattr(start_raylet, "patient"):
        return

    def start(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(start_raylet).bind(*args, **kwargs).arguments
        for name in AGENT_PORTS:
            given[name] = given.get(name) or free_port()
            Path(given["session_dir"], f"{name}_{given['node_id']}").write_text(str(given[name]))
        return start_raylet(**given)

    start.patient = True  # type: ignore[attr-defined]
    services.start_raylet = start
