"""What an actor asks of a cluster: what its episodes take, where there are hosts to choose from or to be brought."""

from __future__ import annotations

from typing import Any

import pytest

from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.takes import BROWSER, COMMANDS, MIB, PROCESS, PROGRAMS, TEXT, Takes
from lemur_ray.rollout.actors.room import LITTLE, room_of

GIB = 1024 * MIB


def host(name: str, cpus: float, memory: int = 8 * GIB, alive: bool = True) -> dict[str, Any]:
    resources = {"node:x": 1.0, "memory": float(memory), **({"CPU": cpus} if cpus else {})}
    return {"NodeID": name, "Alive": alive, "Resources": resources}


HEAD = host("head", 0)


def test_on_a_cluster_an_actor_asks_for_what_its_episodes_take() -> None:
    expected = Takes(PROCESS.cpus + 8 * COMMANDS.cpus, PROCESS.memory_bytes + 8 * COMMANDS.memory_bytes)
    assert room_of(8, COMMANDS, [HEAD], "head") == expected, "with no host yet, so that one is brought"
    assert room_of(8, COMMANDS, [HEAD, host("a", 16)], "head") == expected
    assert room_of(8, COMMANDS, [host("head", 4), host("a", 16)], "head") == expected


def test_on_a_single_host_that_is_the_drivers_own_actors_ask_for_little() -> None:
    assert room_of(64, BROWSER, [host("head", 2)], "head") == LITTLE
    assert room_of(64, BROWSER, [host("head", 2), host("dead", 16, alive=False)], "head") == LITTLE
    assert LITTLE.memory_bytes == 0


def test_an_actor_asks_for_no_more_than_the_largest_host_has() -> None:
    hosts = [HEAD, host("a", 1, 2 * GIB), host("b", 2, GIB)]
    assert room_of(64, PROGRAMS, hosts, "head") == Takes(2.0, 2 * GIB)


def test_what_is_asked_for_by_hand_is_asked_for_anywhere() -> None:
    asked = room_of(4, COMMANDS, [host("head", 2)], "head", cpus=0.7)
    assert asked == Takes(0.7, PROCESS.memory_bytes + 4 * COMMANDS.memory_bytes)


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("alfworld/text", TEXT), ("intercode/sql", TEXT), ("mmlu", TEXT), ("intercode/bash", COMMANDS),
        ("mbpp", COMMANDS), ("ds1000", PROGRAMS), ("mint/math", PROGRAMS), ("webarena/standin", BROWSER),
    ],
)  # fmt: skip
def test_a_benchmark_says_what_its_episodes_take(name: str, takes: Takes) -> None:
    assert find(name).takes == takes
