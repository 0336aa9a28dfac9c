"""Free ports of this machine. Knows nothing of who will listen there."""

from __future__ import annotations

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """A port of ``host`` nobody listens on now; another process may take it before the caller does."""
    with socket.create_server((host, 0)) as listener:
        return int(listener.getsockname()[1])
