"""A model over two fake hosts under Ray Serve: the job, its answers, and what follows when a process is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from lemur_ray.serve.config import EngineOptions, Hosts, ServeJob
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import SamplingOptions
from lemur_ray.serve.loading import load_text_engine
from lemur_ray.serve.on_ray.host_group import gpus_of, missing_bundles, reserve
from lemur_ray.train.pod.slices import parse_slice
from tests.e2e.processes import command_line
from tests.serve.offline import generate
from tests.serve.tiny import poll
from tests.train.pod.pods import QUICK, ROOT, Pod, pods

SMALL = ["--engine.max-slots", "4", "--engine.prefill-tiles", "1", "--num-cpus", "1"]


WHOLE = Hosts(topology="2x2x2", accelerator_type="TPU-V4")


def test_of_a_slice_its_head_is_asked_for_and_the_other_hosts_once_it_is_known_whose_they_are() -> None:
    found = reserve(WHOLE, 2, 0)
    assert found.bundles == [{"CPU": 2, "TPU": 4, "TPU-v4-16-head": 1}, {"CPU": 2, "TPU": 4}]
    assert [labels["ray.io/tpu-worker-id"] for labels in found.labels] == ["0", "1"]
    head = {"ray.io/tpu-pod-type": "v4-16", "ray.io/tpu-worker-id": "0"}
    resources = {"TPU": 4, "TPU-v4-16-head": 1}
    asked = {"ray_actor_options": {"num_cpus": 2, "resources": resources, "label_selector": head}}
    assert found.deployment_options() == asked, "of no slice yet: Serve would put two together"


def test_a_slice_that_is_one_host_needs_neither_a_head_nor_a_number() -> None:
    found = reserve(Hosts(topology="2x4", accelerator_type="TPU-V6E"), 2, 8)
    assert found == ([{"CPU": 2, "TPU": 8}], [{"ray.io/tpu-pod-type": "v6e-8"}])


def test_gpus_are_shared_out_over_hosts_and_one_host_needs_no_group() -> None:
    assert reserve(Hosts(2, use_gpu=True), 1, 8).bundles == [{"CPU": 1, "GPU": 4}] * 2
    alone = reserve(Hosts(use_gpu=True), 1, 8).deployment_options()
    assert alone == {"ray_actor_options": {"num_cpus": 1, "num_gpus": 8}}
    assert reserve(Hosts(), 0.5, 1).deployment_options() == {"ray_actor_options": {"num_cpus": 0.5}}


def test_gpus_are_asked_for_wherever_there_are_some_unless_somebody_said_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    nodes = [{"Alive": alive, "Resources": {"CPU": 8, **gpus}} for alive, gpus in (
        (True, {"GPU": 4.0}), (True, {}), (True, {"GPU": 8.0}), (False, {"GPU": 16.0})
    )]  # fmt: skip
    gpus = gpus_of(nodes)
    assert gpus == [8, 4]
    assert reserve(Hosts(), 1, 1, gpus).bundles == [{"CPU": 1, "GPU": 1}]
    assert reserve(Hosts(), 1, 0, gpus).bundles == [{"CPU": 1, "GPU": 8}], "all of a host"
    assert reserve(Hosts(2), 1, 0, gpus).bundles == [{"CPU": 1, "GPU": 4}] * 2
    assert reserve(WHOLE, 1, 8, gpus) == reserve(WHOLE, 1, 8)
    with pytest.raises(ValueError, match=r"0 GPUs do not spread over 3 .*JAX_PLATFORMS=cpu"):
        reserve(Hosts(3), 1, 0, gpus)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert reserve(Hosts(), 1, 1, gpus).bundles == [{"CPU": 1}]


@pytest.mark.parametrize(
    ("hosts", "parts", "message"),
    [
        (Hosts(3, topology="2x2x2", accelerator_type="TPU-V4"), 0, "has 2 host.s. with 4 chips: use --hosts.num 2"),
        (Hosts(2, topology="2x2x2", accelerator_type="TPU-V4"), 4, "--engine.tensor-parallel 8"),
        (Hosts(2, use_gpu=True), 3, "3 GPUs do not spread over 2 host"),
        (Hosts(2, use_gpu=True), 0, "0 GPUs do not spread"),
    ],
)
def test_hosts_that_do_not_agree_with_the_devices_are_refused(hosts: Hosts, parts: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reserve(hosts, 1, parts)


def test_hosts_that_the_cluster_does_not_have_are_named() -> None:
    big = {"Alive": True, "Resources": {"CPU": 8.0}, "Labels": {}}
    worker = {"ray.io/tpu-worker-id": "1", "ray.io/tpu-pod-type": "v4-16"}
    tpu = {"Alive": True, "Resources": {"CPU": 8.0, "TPU": 4.0}, "Labels": worker}
    assert not missing_bundles(reserve(Hosts(2), 2, 0), [big, tpu])
    assert missing_bundles(reserve(Hosts(2), 2, 0), [big, {**tpu, "Alive": False}]) == [{"CPU": 2}]
    head, other = (whole := reserve(WHOLE, 1, 0)).bundles
    assert missing_bundles(whole, [big, tpu]) == [head]
    zero = {**tpu, "Resources": {**tpu["Resources"], "TPU-v4-16-head": 1.0}}
    one, two = ({"ray.io/tpu-slice-name": name, "ray.io/tpu-pod-type": "v4-16"} for name in ("one", "two"))
    halves = [zero | {"Labels": {**one, "ray.io/tpu-worker-id": "0"}}, tpu | {"Labels": {**two, **worker}}]
    assert missing_bundles(whole, halves) in ([head], [other]), "two halves are no slice"
    first = [halves[0], tpu | {"Labels": {**one, **worker}}]
    assert not missing_bundles(whole, [*first, halves[1]])
    assert missing_bundles(whole, [*first, halves[1]], 2) == [head], "of the second slice worker 0 is missing"
    second = zero | {"Labels": {**two, "ray.io/tpu-worker-id": "0"}}
    assert not missing_bundles(whole, [*first, halves[1], second], 2)
    assert missing_bundles(whole, [*first, halves[1], second], 3) in ([head, other], [head]), "there is no third one"


def test_replicas_share_a_host_as_far_as_its_devices_go() -> None:
    hosts = [{"Alive": True, "Resources": {"CPU": 16.0, "GPU": 8.0}, "Labels": {}}] * 2
    four, both = reserve(Hosts(use_gpu=True), 1, 4), reserve(Hosts(2, use_gpu=True), 1, 16)
    assert not missing_bundles(four, hosts, 4)
    assert missing_bundles(four, hosts, 5) == four.bundles
    assert not missing_bundles(both, hosts)
    assert missing_bundles(both, hosts, 2) == both.bundles


def test_half_a_slice_and_hosts_without_ray_are_refused() -> None:
    with pytest.raises(ValueError, match="topology and accelerator_type"):
        Hosts(topology="2x2x2")
    with pytest.raises(ValueError, match="hosts are Ray"):
        ServeJob(no_ray=True, hosts=Hosts(2))


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Pod]]:
    """Hosts with two devices each."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    with pods() as start:
        yield start


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """jobs/serve.py on a pod; yields the process and the URL it printed."""
    started: list[subprocess.Popen[str]] = []

    def start(pod: Pod, *arguments: str) -> tuple[subprocess.Popen[str], str]:
        env = {**os.environ, **QUICK, "RAY_ADDRESS": pod.address, "LEMUR_HOME": str(tmp_path)}
        command = [sys.executable, str(ROOT / "jobs" / "serve.py"), "--model", "random:nano", *SMALL, *arguments]
        with open(tmp_path / "log.txt", "a") as log:
            started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True))
        assert started[-1].stdout is not None
        for line in started[-1].stdout:
            if found := re.match(r"serving at (http://\S+/v1)\n", line):
                return started[-1], found[1]
        raise AssertionError((tmp_path / "log.txt").read_text()[-3000:])

    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def named(pod: Pod, name: str) -> list[int]:
    """Processes of a pod whose actor has that class."""
    return [pid for pid in pod.processes() if command_line(pid).startswith(f"ray::{name}")]


def gone(pod: Pod, pid: int) -> bool:
    return pid not in named(pod, "Follower")


def completion(url: str, **settings: Any) -> httpx.Response:
    body = {"model": "random-nano", "prompt": [5, 6, 7, 8], "max_tokens": 24, "return_token_ids": True, **settings}
    return httpx.post(f"{url}/completions", json=body, timeout=60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hosts_of_a_slice_answer_like_one_and_come_back_after_a_kill(
    pod: Callable[..., Pod], job: Callable[..., tuple[subprocess.Popen[str], str]]
) -> None:
    cluster = pod(head_cpus=2)
    cluster.add_slice(parse_slice("v4:2x2x2"), "one", cpus=2)
    # Fake chips: a host has two devices instead of four.
    where = ["--hosts.topology", "2x2x2", "--hosts.accelerator-type", "TPU-V4"]
    _, url = job(cluster, *where, "--engine.tensor-parallel", "0")
    lone = load_text_engine("random:nano", EngineOptions(max_slots=4, prefill_tiles=1))
    asked = [{"temperature": 0}, {"temperature": 0.9, "seed": 7}]
    expected = [
        generate(
            lone.engine, [Generation((5, 6, 7, 8), 24, SamplingOptions(**settings), stop_ids=frozenset(lone.stop_ids))]
        )[0]
        for settings in asked
    ]
    lone.engine.close()

    def answered() -> bool:
        try:
            replies = [completion(url, **settings) for settings in asked]
        except httpx.HTTPError:
            return False
        if any(reply.status_code != 200 for reply in replies):
            return False
        assert [reply.json()["choices"][0]["token_ids"] for reply in replies] == expected
        return True

    assert answered()
    assert "lemur_devices 4\n" in httpx.get(f"{url[:-3]}/metrics", timeout=60).text
    followers, replicas = (named(cluster, name) for name in ("Follower", "ServeReplica"))
    assert (len(followers), len(replicas)) == (1, 1)
    os.kill(followers[0], signal.SIGKILL)
    begin, refused = time.monotonic(), completion(url)
    assert refused.status_code == 503, refused.text
    assert time.monotonic() - begin < 50, "the line says it, not the heartbeat"
    poll(partial(gone, cluster, followers[0]), "the old follower is gone", 60)
    poll(answered, "a new group answers", 240)
    assert "lemur_devices 4\n" in httpx.get(f"{url[:-3]}/metrics", timeout=60).text
    assert json.loads(httpx.get(f"{url[:-3]}/ready", timeout=60).text)["status"] == "ready"


def slices_of_groups(cluster: Pod) -> list[tuple[str, str]]:
    """Of each follower that runs: the slice of its host, and that of the replica that started it."""
    slices = {node["NodeID"]: node["Labels"].get("ray.io/tpu-slice-name", "") for node in cluster.nodes()}
    return sorted(
        (slices.get(actor["Address"]["NodeID"], ""), slices.get(actor["OwnerAddress"]["NodeID"], ""))
        for actor in cluster.actor_table()
        if actor["ActorClassName"] == "Follower" and actor["State"] == "ALIVE"
    )


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.timeout(1200)
def test_each_of_two_replicas_has_a_slice_of_its_own(
    pod: Callable[..., Pod], job: Callable[..., tuple[subprocess.Popen[str], str]]
) -> None:
    cluster, kind = pod(head_cpus=2), parse_slice("v4:2x2x2")
    cluster.add_slice(kind, "one", cpus=1)
    cluster.add_slice(kind, "two", cpus=1)
    where = ["--hosts.topology", "2x2x2", "--hosts.accelerator-type", "TPU-V4", "--engine.tensor-parallel", "0"]
    _, url = job(cluster, *where, "--replicas", "2")
    assert slices_of_groups(cluster) == [("one", "one"), ("two", "two")]
    assert (cluster.free("TPU"), cluster.free("TPU-v4-16-head")) == (0, 0)
    assert completion(url).status_code == 200
