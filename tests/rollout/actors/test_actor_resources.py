"""What an actor asks of a cluster: what its episodes take, where there are hosts to choose from or to be brought."""

from __future__ import annotations

from typing import Any

import pytest
from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply  # type: ignore[attr-defined]

from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.resource_request import BROWSER, COMMANDS, MIB, PROCESS, PROGRAMS, TEXT, Resources
from lemur_ray.rollout.actors.actor_resources import MINIMAL, actor_resources, autoscales_v1, autoscales_v2
from lemur_ray.rollout.actors.on_ray import cluster_grows

GIB = 1024 * MIB


def host(name: str, cpus: float, memory: int = 8 * GIB, alive: bool = True) -> dict[str, Any]:
    resources = {"node:x": 1.0, "memory": float(memory), **({"CPU": cpus} if cpus else {})}
    return {"NodeID": name, "Alive": alive, "Resources": resources}


HEAD = host("head", 0)


def test_on_a_cluster_an_actor_asks_for_what_its_episodes_take() -> None:
    expected = Resources(PROCESS.cpus + 8 * COMMANDS.cpus, PROCESS.memory_bytes + 8 * COMMANDS.memory_bytes)
    assert actor_resources(8, COMMANDS, [HEAD], "head") == expected, "with no host yet, so that one is brought"
    assert actor_resources(8, COMMANDS, [HEAD, host("a", 16)], "head") == expected
    assert actor_resources(8, COMMANDS, [host("head", 4), host("a", 16)], "head") == expected


def test_on_a_single_host_that_is_the_drivers_own_actors_ask_for_little() -> None:
    assert actor_resources(64, BROWSER, [host("head", 2)], "head") == MINIMAL
    assert actor_resources(64, BROWSER, [host("head", 2), host("dead", 16, alive=False)], "head") == MINIMAL
    assert MINIMAL.memory_bytes == 0


def test_on_a_head_with_processors_actors_ask_for_what_they_take_where_the_cluster_brings_hosts() -> None:
    asked = actor_resources(8, COMMANDS, [host("head", 4)], "head", grows=True)
    assert asked == PROCESS + COMMANDS * 8, "so that those which find no room bring a host"
    assert actor_resources(64, BROWSER, [host("head", 2)], "head", grows=True) == Resources(2.0, 8 * GIB), (
        "and one always runs"
    )


@pytest.mark.parametrize(
    ("status", "grows"),
    [
        (None, False), (b"{", False), (b"[]", False), (b'{"monitor_pid": 3}', False),
        (b'{"autoscaler_report": {"active_nodes": {"node_ab12": 1, "node_cd34": 1}}}', False),
        (b'{"autoscaler_report": {"active_nodes": {"headgroup": 1}}}', True),
    ],
)  # fmt: skip
def test_a_cluster_grows_where_its_autoscaler_knows_types_of_nodes(status: bytes | None, grows: bool) -> None:
    assert autoscales_v1(status) is grows


def test_a_newer_autoscaler_is_known_by_the_names_of_its_nodes() -> None:
    found = GetClusterStatusReply()
    found.cluster_resource_state.node_states.add(ray_node_type_name="headgroup")
    assert not autoscales_v2(found), "the operator names nodes, and nobody scales them"
    found.autoscaling_state.autoscaler_state_version = 7
    assert autoscales_v2(found)
    found.cluster_resource_state.node_states[0].ray_node_type_name = ""
    assert not autoscales_v2(found), "the monitor of a head that was started by hand"


def test_a_head_of_our_own_does_not_grow(ray_local: str) -> None:
    assert not cluster_grows()


def test_an_actor_asks_for_no_more_than_the_largest_host_has() -> None:
    hosts = [HEAD, host("a", 1, 2 * GIB), host("b", 2, GIB)]
    assert actor_resources(64, PROGRAMS, hosts, "head") == Resources(2.0, 2 * GIB)


def test_what_is_asked_for_by_hand_is_asked_for_anywhere() -> None:
    asked = actor_resources(4, COMMANDS, [host("head", 2)], "head", cpus=0.7)
    assert asked == Resources(0.7, PROCESS.memory_bytes + 4 * COMMANDS.memory_bytes)


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("alfworld/text", TEXT), ("intercode/sql", TEXT), ("mmlu", TEXT), ("intercode/bash", COMMANDS),
        ("mbpp", COMMANDS), ("ds1000", PROGRAMS), ("mint/math", PROGRAMS), ("webarena/standin", BROWSER),
    ],
)  # fmt: skip
def test_a_benchmark_says_what_its_episodes_take(name: str, takes: Resources) -> None:
    assert find(name).resources == takes
