"""``ray start`` as a host's supervisor runs it: a node that ends is started again, as the container of a pod is.

``ray start --block`` waits for ever where a raylet has ended by itself, with 0: where its agent found the port of the
one before still taken, for example. Here that is an end too, and the next node is started when the ports are free.

A raylet gives its agents 15 s, hard-coded, to write down their ports, which a busy machine does not hold: they are
written down beforehand. Stands alone: hosts have Ray, and nothing of the project that no job has brought.
"""

import contextlib
import functools
import inspect
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

PORTS = {
    "metrics_agent_port": 11001,
    "metrics_export_port": 11002,
    "dashboard_agent_listen_port": 11003,
    "runtime_env_agent_port": 11004,
}
"""By the names of a raylet's arguments and of the files in which its agents write them down."""


def write_ports_down(first: int = 0) -> None:
    """Of every raylet that this process starts: the first gets PORTS and ``first`` more, each further one others."""
    from ray._private import services

    start_raylet, more = services.start_raylet, itertools.count(first, 10)

    def with_ports_written_down(*args, **kwargs):
        given = inspect.signature(start_raylet).bind(*args, **kwargs).arguments
        others = next(more)
        for name, port in PORTS.items():
            given[name] = given.get(name) or port + others
            Path(given["session_dir"], f"{name}_{given['node_id']}").write_text(str(given[name]))
        return start_raylet(**given)

    services.start_raylet = with_ports_written_down


def end_with_the_raylet() -> None:
    """This process ends soon after a raylet that it starts, however that ended."""
    from ray._private import services

    start_raylet = services.start_raylet

    def wait_for(raylet: subprocess.Popen[bytes]) -> None:
        code = raylet.wait()
        time.sleep(5)  # who blocks looks every second, says what it found, and ends this process itself
        os._exit(code or 1)

    @functools.wraps(start_raylet)
    def watched(*args, **kwargs):
        started = start_raylet(*args, **kwargs)
        threading.Thread(target=wait_for, args=(started.process,), daemon=True).start()
        return started

    services.start_raylet = watched


def wait_for_ports(timeout_s: float = 30.0) -> None:
    """Until no process of the node before listens any more, or it takes too long."""
    deadline = time.monotonic() + timeout_s
    for port in PORTS.values():
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.socket() as ours:
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                ours.bind(("", port))
                break
            time.sleep(0.2)


def start(argv: list[str]) -> None:
    """Become ``ray ARGV``."""
    write_ports_down()
    from ray.scripts.scripts import main

    sys.argv = ["ray", *argv]
    main()


if __name__ == "__main__":
    if sys.argv[1] == "once":
        end_with_the_raylet()
        start(sys.argv[2:])
    while True:
        wait_for_ports()
        ended = subprocess.run([sys.executable, __file__, "once", *sys.argv[1:]], check=False)
        print(f"[{time.strftime('%H:%M:%S')}] node of {os.uname().nodename} ended with {ended.returncode}", flush=True)
        time.sleep(1)
