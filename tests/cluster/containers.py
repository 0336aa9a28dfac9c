"""A head and workers in containers of an image, started with the command that KubeRay would give them.

Speaks to Docker by its command line. Containers and network end with the ``with`` block.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hosts.ray_hosts import PATIENT

LABEL = "lemur.test=image"
SUBNETS = [f"10.{second}.77" for second in range(201, 250)]


def docker(*words: str, timeout_s: float = 120.0) -> str:
    """What the command printed. Raises AssertionError where it fails."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr or done.stdout}"
    return done.stdout.strip()


@dataclass
class Containers:
    """The first that is added is the head. ``outside``: the address of this machine on their network."""

    image: str
    network: str
    subnet: str
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    names: list[str] = field(default_factory=list)

    @property
    def outside(self) -> str:
        return f"{self.subnet}.1"

    @property
    def head(self) -> str:
        return f"{self.subnet}.2"

    @property
    def auth(self) -> dict[str, str]:
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_USAGE_STATS_ENABLED": "0"}

    def add(self, role: str, shell: str, *options: str) -> None:
        """A node of ``role`` head or worker. ``options``: of ``ray start``."""
        name = f"{self.network}-{len(self.names)}"
        address = f"{self.subnet}.{len(self.names) + 2}"
        more = (
            ["--head", "--dashboard-host=0.0.0.0", "--port=6379"] if role == "head" else [f"--address={self.head}:6379"]
        )
        ray = ["ray", "start", *more, *options, "--block", "--metrics-export-port=8080"]
        ray += ["--dashboard-agent-listen-port=52365", f"--node-ip-address={address}"]
        env = [f"--env={key}={value}" for key, value in {**self.auth, **PATIENT}.items()]
        self.names.append(name)
        docker(
            "run", "--detach", f"--name={name}", f"--hostname={role}-{len(self.names) - 1}", f"--label={LABEL}",
            f"--network={self.network}", f"--ip={address}", "--memory=4g", "--shm-size=512m", "--restart=on-failure",
            *env, self.image, "/bin/bash", shell, "--", f"ulimit -n 65536; {' '.join(ray)}",
        )  # fmt: skip

    def run(self, number: int, *words: str, timeout_s: float = 120.0) -> str:
        """Run a command in a container."""
        return docker("exec", self.names[number], *words, timeout_s=timeout_s)

    def wait(self, num: int, timeout_s: float = 300.0) -> None:
        """Until so many nodes are alive."""
        deadline = time.monotonic() + timeout_s
        while (found := self._alive()) != num:
            logs = (
                "".join(docker("logs", "--tail", "15", name) for name in self.names)
                if time.monotonic() > deadline
                else ""
            )
            assert time.monotonic() < deadline, f"{found} of {num} nodes after {timeout_s:g} s: {logs}"
            time.sleep(0.5)

    def _alive(self) -> int:
        asked = urllib.request.Request(
            f"http://{self.head}:8265/api/v0/nodes?limit=100", headers={"Authorization": f"Bearer {self.token}"}
        )
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(asked, timeout=10) as answer:
            nodes = json.load(answer)["data"]["result"]["result"]
            return sum(node["state"] == "ALIVE" for node in nodes)
        return 0

    def submit(self, entry: Sequence[str], folder: Path | None = None, timeout_s: float = 600.0) -> str:
        """What a job printed that was submitted from outside; ``folder``: its working directory, else the image's."""
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "job",
            "submit",
            "--address",
            f"http://{self.head}:8265",
        ]
        command += [*(["--working-dir", str(folder)] if folder else []), "--", *entry]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "PYTHONPATH", "LEMUR_"))}
        done = subprocess.run(
            command, env={**clean, **self.auth}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=timeout_s,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout

    def result(self, *entry: str, **more: Any) -> dict[str, Any]:
        """The JSON object that a job printed last."""
        said = self.submit(entry, **more)
        objects = [line for line in said.splitlines() if line.startswith("{")]
        assert objects, said[-4000:]
        return dict(json.loads(objects[-1]))


@contextlib.contextmanager
def containers(image: str) -> Iterator[Containers]:
    """None yet, on a network of their own."""
    made = Containers(image, f"lemur-{secrets.token_hex(3)}", "")
    for subnet in SUBNETS:  # the first that nobody has
        with contextlib.suppress(AssertionError):
            docker("network", "create", "--driver=bridge", f"--subnet={subnet}.0/24", f"--label={LABEL}", made.network)
            made.subnet = subnet
            break
    assert made.subnet, "no network can be made: docker network create --driver bridge --subnet 10.201.77.0/24 try"
    try:
        yield made
    finally:
        for name in made.names:
            with contextlib.suppress(AssertionError):
                docker("rm", "--force", "--volumes", name)
        docker("network", "rm", made.network)
