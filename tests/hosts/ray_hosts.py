"""A Ray cluster on hosts that share nothing: a head, workers, a token, and jobs that come from outside.

Every host has its own path for everything: Python, Ray's folder, LEMUR_HOME. What a job needs it brings, or fetches.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.hosts.host import SYSTEM_PATH, Host
from tests.hosts.network import Network

PYTHON = "/opt/{name}/python"
PACKAGES = "/var/lib/dpkg"
IMAGE = {sys.base_prefix: sys.base_prefix, sys.prefix: PYTHON, PACKAGES: PACKAGES}
GCS_PORT, DASHBOARD_PORT = 6379, 8265
PATIENT = {
    "RAY_raylet_start_wait_time_s": "180",
    "RAY_worker_register_timeout_seconds": "180",
    "RAY_agent_register_timeout_ms": "180000",
    "RAY_worker_niceness": "0",
}
"""With whatever else the machine does, a slow start is not a lost one."""
NOTICED_S = 15.0
"""After so long a host that is silent counts as lost: failures x (period + timeout), below."""
HEALTH = {
    "RAY_health_check_initial_delay_ms": "5000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
}
PROJECT = ("lemur_ray", "envs", "jobs", "requirements.lock", "pyproject.toml")


def ray_folder(host: Host) -> str:
    """Of Ray, on the host."""
    return f"/var/tmp/{host.name}-ray"


def lemur_home(host: Host) -> str:
    """On the host."""
    return f"/srv/{host.name}/lemur"


@dataclass
class Submitted:
    """A job that was submitted, and the lines that it has printed."""

    process: subprocess.Popen[bytes]
    log: Path
    name: str

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, what: Callable[[], bool], timeout_s: float) -> None:
        """Until ``what`` is so; fails where the job ends first."""
        deadline = time.monotonic() + timeout_s
        while not what():
            assert self.process.poll() is None, f"ended too soon:\n{self.printed()[-4000:]}"
            assert time.monotonic() < deadline, f"not in {timeout_s:g} s:\n{self.printed()[-4000:]}"
            time.sleep(0.1)

    def end(self, timeout_s: float) -> dict[str, Any]:
        """The JSON object that the job printed last."""
        assert self.process.wait(timeout_s) == 0, self.printed()[-6000:]
        objects = [line for line in self.printed().splitlines() if line.startswith("{")]
        assert objects, self.printed()[-4000:]
        return dict(json.loads(objects[-1]))


@dataclass
class RayHosts:
    """``cpus``: of each host, the head too."""

    net: Network
    cpus: int = 1
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    hosts: dict[str, Host] = field(default_factory=dict)
    _jobs: int = 0

    @property
    def head(self) -> Host:
        return self.hosts["head"]

    @property
    def dashboard(self) -> str:
        return f"http://{self.head.address}:{DASHBOARD_PORT}"

    @property
    def _auth(self) -> dict[str, str]:
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_USAGE_STATS_ENABLED": "0"}

    def env(self, host: Host) -> dict[str, str]:
        """What every process of Ray on a host finds in its environment."""
        more = {"RAY_TRAIN_V2_ENABLED": "1", "RAY_enable_worker_prestart": "0", "PYTHONUNBUFFERED": "1"}
        path = f"{PYTHON.format(name=host.name)}/bin:{SYSTEM_PATH}"
        place = {"LEMUR_HOME": lemur_home(host), "PATH": path, "JAX_PLATFORMS": "cpu", "RAY_DEDUP_LOGS": "0"}
        return {**self._auth, **more, **place, **PATIENT, **HEALTH}

    def add(self, name: str, env: Mapping[str, str] | None = None, **options: str) -> Host:
        """A new host with a node on it; the first is the head. ``options``: of ``ray start``. Does not wait for it."""
        self.hosts[name] = self.net.host(name)
        self.start(self.hosts[name], env, **options)
        return self.hosts[name]

    def start(self, host: Host, env: Mapping[str, str] | None = None, **options: str) -> None:
        """Start the supervisor of a host that was booted: it starts the node, and starts it again whenever it ends."""
        shutil.copy(Path(__file__).with_name("ray_node.py"), f"{host.root}{host.home}/ray_node.py")
        given = {
            "node-ip-address": host.address,
            "num-cpus": str(self.cpus),
            "object-store-memory": str(128 << 20),
            "temp-dir": ray_folder(host),
            "resources": json.dumps({host.name: 1}),
            "node-manager-port": "6380",
            "object-manager-port": "6381",
            "min-worker-port": "12000",
            "max-worker-port": "12999",
        }
        if host is self.head:
            role = ["--head", f"--port={GCS_PORT}", "--dashboard-host=0.0.0.0", f"--dashboard-port={DASHBOARD_PORT}"]
        else:
            role = [f"--address={self.head.address}:{GCS_PORT}"]
        words = [f"--{name.replace('_', '-')}={value}" for name, value in {**given, **options}.items()]
        python = f"{PYTHON.format(name=host.name)}/bin/python"
        argv = [python, f"{host.home}/ray_node.py", "start", "--block", "--disable-usage-stats", *role, *words]
        host.start(argv, {**self.env(host), **(env or {})}, "ray.log")

    def replace(self, host: Host) -> None:
        """Another machine comes up in the place of a lost one."""
        self.net.replace(host)
        self.start(host)

    def lose(self, host: Host) -> None:
        """Power loss; the next machine of that name will be reachable."""
        self.net.lose(host)

    def states(self) -> dict[str, str]:
        """Of every host, by its name: ALIVE where any node of it is. Empty where the head does not answer."""
        found: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError):
            for node in self._told("v0/nodes?limit=1000")["data"]["result"]["result"]:
                if (name := self._names.get(node["node_ip"])) and found.get(name) != "ALIVE":
                    found[name] = node["state"]
        return found

    def num_nodes(self) -> int:
        """That are alive, the head too; several may be on one host. Raises OSError, ValueError."""
        nodes = self._told("v0/nodes?limit=1000")["data"]["result"]["result"]
        return sum(node["state"] == "ALIVE" for node in nodes)

    def serving(self) -> list[str]:
        """The hosts of all replicas that Serve runs, by their names. Empty where the head does not answer."""
        found: list[str] = []
        with contextlib.suppress(OSError, ValueError):
            for application in self._told("serve/applications/")["applications"].values():
                for deployment in application["deployments"].values():
                    running = (one for one in deployment["replicas"] if one["state"] == "RUNNING")
                    found += [self._names[replica["node_ip"]] for replica in running]
        return sorted(found)

    def training(self) -> list[str]:
        """The hosts of all workers of Ray Train that live, by their names."""
        nodes = self._told("v0/nodes?limit=1000")["data"]["result"]["result"]
        names = {node["node_id"]: self._names[node["node_ip"]] for node in nodes}
        actors = self._told("v0/actors?limit=1000")["data"]["result"]["result"]
        return sorted(
            names[actor["node_id"]]
            for actor in actors
            if "TrainWorker" in actor["class_name"] and actor["state"] == "ALIVE"
        )

    @property
    def _names(self) -> dict[str, str]:
        """Of hosts, by their addresses."""
        return {host.address: name for name, host in self.hosts.items()}

    def _told(self, what: str, method: str = "GET") -> Any:
        """An answer of the dashboard. Raises OSError, ValueError."""
        headers = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.dashboard}/api/{what}", headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def wait(self, timeout_s: float = 240.0, **states: str) -> float:
        """Until hosts are in these states, a=ALIVE for example; the seconds that it took."""
        began = time.monotonic()
        while not states.items() <= (found := self.states()).items():
            if time.monotonic() - began > timeout_s:
                logs = {host.name: _tail(host.folder / "ray.log") for host in self.hosts.values()}
                raise AssertionError(f"after {timeout_s:g} s: {found}, expected {states}: {logs}")
            time.sleep(0.2)
        return time.monotonic() - began

    def project(self) -> Path:
        """The project as a working directory, made once."""
        folder = self.net.folder / "project"
        if not folder.exists():
            folder.mkdir()
            for name in PROJECT:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / name, folder)
        return folder

    def submit(self, *entry: str, folder: Path | None = None, env: Mapping[str, str] | None = None) -> Submitted:
        """Run a command as a job, from outside, with the project (or ``folder``) as its working directory."""
        self._jobs += 1
        log, name = self.net.folder / f"job-{self._jobs}.log", f"job-{self._jobs}"
        command = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--address", self.dashboard]
        command += ["--submission-id", name, "--working-dir", str(folder or self.project()), "--", *entry]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "PYTHONPATH", "LEMUR_"))}
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, env={**clean, **self._auth, **(env or {})}, stdout=file, stderr=subprocess.STDOUT
            )
        return Submitted(process, log, name)

    def project_on(self, host: Host) -> str:
        """Where the project lies on a host, as in an image: at the same place on every host."""
        project = Path(f"{host.root}/srv/project")
        if not project.exists():
            shutil.copytree(self.project(), project)
        return "/srv/project"

    def drive(self, host: Host, *entry: str, env: Mapping[str, str] | None = None) -> Submitted:
        """Run a Python program of the project on a host, as who is logged in there does: it joins the cluster."""
        for one in self.hosts.values():
            self.project_on(one)
        self._jobs += 1
        name = f"driver-{self._jobs}"
        given = {**self.env(host), "RAY_ADDRESS": f"{self.head.address}:{GCS_PORT}", **(env or {})}
        log = host.start(["sh", "-c", 'cd /srv/project; exec python "$@"', "drive", *entry], given, f"{name}.log")
        return Submitted(host.started[-1], log, name)

    def stop(self, job: Submitted) -> None:
        """End a job that goes on until it is told, and wait for its end."""
        self._told(f"jobs/{job.name}/stop", "POST")
        job.process.wait(120)

    def result(self, *entry: str, timeout_s: float = 240.0, **more: Any) -> dict[str, Any]:
        """Submit a job and wait for the JSON object that it prints last."""
        return self.submit(*entry, **more).end(timeout_s)

    def written(self, host: Host, path: str) -> Path:
        """A path under a host's LEMUR_HOME, as the machine sees it."""
        return Path(f"{host.root}{lemur_home(host)}/{path}")


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:] if log.exists() else ""


@contextlib.contextmanager
def ray_hosts(*workers: str) -> Iterator[RayHosts]:
    """A head and these workers, all of them up."""
    with Network(IMAGE) as net:
        cluster = RayHosts(net)
        cluster.add("head")
        cluster.wait(head="ALIVE")
        for name in workers:
            cluster.add(name)
        cluster.wait(**dict.fromkeys(workers, "ALIVE"))
        yield cluster
