"""An evaluation for which too few hosts are there: its actors ask for what they take, hosts come, and go at its end.

Ray's own autoscaler on one host of ours: its nodes are fake, and whatever it ends it ends in that host's namespace of
processes.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.agents.misbehaving import serving
from tests.hosts.network import Network
from tests.hosts.ray_hosts import GCS_PORT, IMAGE, PYTHON, RayHosts
from tests.hosts.slow_model import SlowModel

IDLE_S = 6.0
"""A node with nothing on it goes after so long."""
HEAD = "ray.head.default"
"""As the provider calls the node that is there."""
NODE = {"CPU": 1, "memory": 2 << 30, "object_store_memory": 100 << 20}
"""Room for one actor, as on the head."""
AUTOSCALER = {
    "cluster_name": "fake", "max_workers": 4, "head_node_type": HEAD, "upscaling_speed": 1.0,
    "idle_timeout_minutes": IDLE_S / 60, "auth": {}, "docker": {}, "file_mounts": {}, "cluster_synced_files": [],
    "file_mounts_sync_continuously": False, "initialization_commands": [], "setup_commands": [],
    "head_setup_commands": [], "worker_setup_commands": [], "head_start_ray_commands": [],
    "worker_start_ray_commands": [],
    "provider": {
        "type": "external", "module": "fake_nodes.FakeNodes", "use_node_id_as_ip": True, "disable_node_updaters": True,
        "disable_launch_config_check": True,
    },
    "available_node_types": {
        HEAD: {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
        "envs": {"resources": NODE, "node_config": {}, "min_workers": 0, "max_workers": 4},
    },
}  # fmt: skip


def until(cluster: RayHosts, number: int, timeout_s: float) -> float:
    """The seconds until there are so many nodes besides the head."""
    began = time.monotonic()
    while (found := cluster.num_nodes() - 1) != number:
        if time.monotonic() - began > timeout_s:
            logs = Path(f"{cluster.head.root}/var/tmp/head-ray/session_latest/logs")
            said = (logs / "monitor.log").read_text()[-4000:]
            raise AssertionError(f"{found} nodes after {timeout_s:g} s, expected {number}: {said}")
        time.sleep(0.2)
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_evaluation_brings_the_hosts_that_it_asks_for_and_they_go_when_it_has_ended(can_make_hosts: None) -> None:
    model = SlowModel()
    model.think_s = 1.0
    with Network(IMAGE) as net, serving(model, host=net.outside) as server:
        cluster = RayHosts(net)
        head = cluster.hosts["head"] = net.host("head")
        for file in ("ray_node.py", "fake_nodes.py"):
            shutil.copy(Path(__file__).with_name(file), f"{head.root}{head.home}")
        Path(f"{head.root}{head.home}/autoscaler.json").write_text(json.dumps(AUTOSCALER))
        shutil.copytree(cluster.project(), f"{head.root}/srv/project")
        quick = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "PYTHONPATH": head.home}
        scaled = {"autoscaling-config": f"{head.home}/autoscaler.json", "num-cpus": "1"}
        cluster.start(head, quick, **scaled)
        cluster.wait(head="ALIVE")
        assert cluster.num_nodes() == 1
        what = (
            "--benchmark", "intercode/sql", "--policy", f"openai:{server.url}", "--policy-model", "toy", "--data", "",
            "--prompt", "full", "--epochs", "3", "--actors", "3", "--in-flight", "192", "--out", "/srv/scaled",
        )  # fmt: skip
        argv = [f"{PYTHON.format(name='head')}/bin/python", "/srv/project/jobs/agent_eval.py", *what]
        log = head.start(argv, {**cluster.env(head), "RAY_ADDRESS": f"{head.address}:{GCS_PORT}"}, "job.log")
        job = head.started[-1]
        came_s = until(cluster, 2, 120)
        assert job.wait(180) == 0, log.read_text()[-4000:]
        ended = json.loads([line for line in log.read_text().splitlines() if line.startswith("{")][-1])
        gone_s = until(cluster, 0, 60)
    print(f"2 nodes in {came_s:.1f} s from the start of the job, none {gone_s:.1f} s after its end")
    assert (ended["n"], ended["scored"]) == (192, 192)
