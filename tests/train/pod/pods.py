"""Private Ray clusters of fake hosts, for tests of everything between a recipe and jax.distributed.

Each host is a ``ray start`` of its own: a host of a TPU slice has the resources, labels and environment that Ray needs
before it reserves whole slices, any other only cores. Everything is ended by process id, never by name.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lemur_ray.host.ports import free_port
from lemur_ray.train.pod.slices import Slice
from tests.e2e.processes import command_line, descendants, parents

ROOT = Path(__file__).resolve().parents[3]
QUICK = {
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_period_ms": "1000",
    "RAY_enable_worker_prestart": "0",
    "RAY_worker_niceness": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.3",
    "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.5",
    "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "30",
    "JAX_DISTRIBUTED_SHUTDOWN_TIMEOUT_S": "3",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_worker_register_timeout_seconds": "180",
    "RAY_agent_register_timeout_ms": "120000",
}
"""A lost host is noticed within seconds, a slow start is not taken for one."""

PATIENT_RAY = """
import os, sys
from ray._private.node import Node
from ray.scripts.scripts import main
from tests.patient_ray import write_ports_down
write_ports_down()
Node._prepare_socket_file = lambda self, _, default_prefix: f"{self._sockets_dir}/{default_prefix}.{os.getpid()}"
sys.argv[0] = "ray"
main()
"""
"""``ray`` for busy machines that are several hosts. Those that start together would take the same names for their
sockets, and the second would abort."""


class Host:
    """One raylet and what it starts; the first of a pod is the head."""

    def __init__(self, folder: str, arguments: list[str], env: dict[str, str]) -> None:
        self.folder, self.arguments, self.env = folder, arguments, env
        self.start()

    def start(self) -> None:
        """Begin to start; what is there when the cluster lists ``node_id``."""
        self.node_id, self.since = secrets.token_hex(28), time.monotonic()
        command = [sys.executable, "-c", PATIENT_RAY, "start", "--block", "--node-ip-address=127.0.0.1"]
        names = ("dashboard-agent-grpc-port", "dashboard-agent-listen-port", "metrics-export-port")
        command += [f"--{name}={free_port()}" for name in (*names, "runtime-env-agent-port")]
        command += [
            "--object-store-memory=100000000",
            "--min-worker-port=0",
            "--max-worker-port=0",
            "--disable-usage-stats",
            *self.arguments,
        ]
        env = {**os.environ, **QUICK, **self.env, "RAY_OVERRIDE_NODE_ID_FOR_TESTING": self.node_id}
        with open(f"{self.folder}/hosts.txt", "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=env)

    def kill(self) -> None:
        """SIGKILL to all of it, as when the machine goes down."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Pod:
    """A head without cores for training, and hosts that come and go."""

    def __init__(self, *, head_cpus: float = 0) -> None:
        self.folder = tempfile.mkdtemp(prefix="lp-", dir="/tmp")
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.hosts: list[Host] = []
        arguments = ["--head", "--include-dashboard=false", f"--port={self.port}", f"--num-cpus={head_cpus:g}"]
        arguments += [f"--ray-client-server-port={free_port()}", f"--temp-dir={self.folder}"]
        self.head = Host(self.folder, arguments, {})
        try:
            self._until_it_answers()
        except BaseException:
            self.kill()
            raise

    def add_host(self, *, cpus: float = 2, **env: str) -> Host:
        """A host with cores alone."""
        return self._add([f"--num-cpus={cpus:g}"], env)

    def add_slice(self, one: Slice, name: str, *, cpus: float = 2) -> list[Host]:
        """All hosts of one TPU slice. Labels alone are not enough: Ray reads the slice's name from TPU_NAME there."""
        hosts = []
        for worker in range(one.num_hosts):
            resources = {"TPU": one.chips_per_host, f"accelerator_type:{one.generation.accelerator_type}": 1}
            if worker == 0:
                resources[f"TPU-{one.pod_type}-head"] = 1
            labels = {"slice-name": name, "worker-id": worker, "topology": one.topology, "pod-type": one.pod_type}
            spelled = ",".join(f"ray.io/tpu-{key}={value}" for key, value in labels.items())
            arguments = [f"--num-cpus={cpus:g}", f"--labels={spelled}", f"--resources={_json(resources)}"]
            env = {"TPU_NAME": name, "TPU_WORKER_ID": str(worker), "TPU_TOPOLOGY": one.topology}
            env |= {"TPU_ACCELERATOR_TYPE": one.pod_type, "TPU_SKIP_MDS_QUERY": "1"}
            hosts.append(self._add(arguments, env))
            self.wait_for_hosts(len(self.hosts))  # one after the other: together they take each other's time
        return [*self.hosts[-len(hosts) :]]

    def _add(self, arguments: list[str], env: dict[str, str]) -> Host:
        self.hosts.append(Host(self.folder, [f"--address={self.address}", *arguments], env))
        return self.hosts[-1]

    def lose(self, host: Host) -> None:
        """A host goes down at once and does not come back."""
        self.hosts.remove(host)
        host.kill()

    def _until_it_answers(self) -> None:
        from ray._raylet import GcsClient

        deadline = time.monotonic() + 120
        while True:
            try:
                return GcsClient(address=self.address).check_alive([], timeout=5) and None
            except Exception:
                assert time.monotonic() < deadline, "the head did not come up"
                assert self.head.process.poll() is None, Path(f"{self.folder}/hosts.txt").read_text()[-2000:]
                time.sleep(0.2)

    def nodes(self) -> list[dict]:
        """Living nodes as the cluster sees them: NodeID, Resources, Labels."""
        with self._state() as view:
            return [node for node in view.node_table() if node["Alive"]]

    def actors(self) -> list[tuple[str, str]]:
        """Class and state of every actor there is or was."""
        return [(actor["ActorClassName"], actor["State"]) for actor in self.actor_table()]

    def actor_table(self) -> list[dict]:
        """Every actor there is or was, as Ray describes it."""
        with self._state() as view:
            return [*view.actor_table(None, None, None).values()]

    def free(self, resource: str) -> float:
        """How much of it nobody has taken."""
        with self._state() as view:
            return sum(node.get(resource, 0.0) for node in view.available_resources_per_node().values())

    @contextlib.contextmanager
    def _state(self) -> Iterator[Any]:
        """The cluster's own view of itself, without joining it."""
        import ray._private.state as state
        from ray._raylet import GcsClientOptions

        view = state.GlobalState()
        view._initialize_global_state(
            GcsClientOptions.create(self.address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
        )
        try:
            yield view
        finally:
            view.disconnect()

    def wait_for_hosts(self, count: int, timeout_s: float = 240) -> None:
        """Until so many hosts besides the head are there, and none that was killed is still listed."""
        assert len(self.hosts) == count, f"the pod has {len(self.hosts)} hosts, not {count}"
        deadline = time.monotonic() + timeout_s
        while (alive := {node["NodeID"] for node in self.nodes()}) != {h.node_id for h in (self.head, *self.hosts)}:
            assert time.monotonic() < deadline, f"{len(alive) - 1} hosts after {timeout_s} s, expected {count}"
            for host in (host for host in self.hosts if host.node_id not in alive):
                if host.process.poll() is not None or time.monotonic() > host.since + 60:
                    host.kill()
                    host.start()  # on a busy machine a raylet may give up
            time.sleep(0.2)

    def processes(self) -> list[int]:
        """Every process of the pod: those started with its folder, and all below them."""
        found = {host.process.pid for host in (self.head, *self.hosts)}
        found |= {pid for pid in parents() if self.folder in command_line(pid)}
        return sorted(found.union(*map(descendants, found)) - {os.getpid()})

    def kill(self) -> None:
        """SIGKILL to every process of the pod."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for host in (self.head, *self.hosts):
            host.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _json(resources: dict[str, float]) -> str:
    import json

    return json.dumps(resources)


@contextlib.contextmanager
def pods() -> Iterator[Callable[..., Pod]]:
    """A maker of pods; all of them are gone at the end."""
    started: list[Pod] = []

    def start(**options: float) -> Pod:
        started.append(Pod(**options))
        return started[-1]

    try:
        yield start
    finally:
        for pod in started:
            pod.kill()


def driver(pod: Pod, arguments: list[str], home: Path, *, devices: int = 1, **env: str) -> subprocess.Popen[str]:
    """jobs/pretrain.py on a pod; workers get so many CPU devices each. Its output goes to ``home/log.txt``."""
    settings = {
        **os.environ,
        **QUICK,
        "RAY_ADDRESS": pod.address,
        "LEMUR_HOME": str(home),
        "JAX_PLATFORMS": "cpu",
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        **env,
    }
    with open(home / "log.txt", "a") as log:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "jobs" / "pretrain.py"), *arguments],
            env=settings,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=home,
        )
