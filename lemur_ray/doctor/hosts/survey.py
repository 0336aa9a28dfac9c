"""Collects the facts of every host of the connected cluster; names the hosts that do not answer in time.

The only module of the doctor that imports Ray. It sends ``host_facts`` by value, so hosts may have other versions."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
import ray.cloudpickle
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lemur_ray.doctor.hosts import host_facts
from lemur_ray.doctor.hosts.host_facts import HostFacts
from lemur_ray.storage.bucket_access import AccessFailure
from lemur_ray.storage.file_system import bucket_environment
from lemur_ray.storage.retry_policy import BucketProblem

ROUNDS = 5
"""Number of readings of a host's clock; the quickest one is used, as it has the least uncertainty."""
CLIENT_S, CLIENTS_S = 15.0, 90.0
"""Time limits in seconds: one client's wait for a bucket, and a host's for all of its clients."""


@dataclass(frozen=True)
class Answers:
    """Result of a survey: facts of the ``hosts`` that answered. ``silent``: host -> why it did not answer.
    ``free_cpus``: free CPUs of the cluster before the survey."""

    hosts: tuple[HostFacts, ...]
    silent: Mapping[str, str]
    free_cpus: float
    most_cpus: float = 0.0
    """Upper limit of an autoscaling cluster; 0 for others."""
    bucket: Mapping[str, Mapping[str, AccessFailure | None]] = field(default_factory=dict)
    """Host -> client -> why it could not use the named bucket; None if it could."""


def ask(timeout_s: float = 60.0, bucket: str = "") -> Answers:
    """Collect the facts of all live hosts of the connected cluster, by a temporary actor on each. Hosts that do not
    answer within ``timeout_s`` seconds are named in ``silent``. ``bucket``: URL of a bucket to try, or empty."""
    ray.cloudpickle.register_pickle_by_value(host_facts)
    free = ray.available_resources().get("CPU", 0.0)
    most = (ray._private.state.state.get_max_resources_from_cluster_config() or {}).get("CPU", 0.0)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    deadline = time.monotonic() + timeout_s
    actors: list[tuple[str, Mapping[str, Any], Any, Any]] = []
    try:
        for name, node in zip(_names(nodes), nodes, strict=True):
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            folder = str(node.get("ObjectStoreSocketName", "")).partition("/session_")[0]
            actor: Any = ray.remote(host_facts.Asked).options(num_cpus=0, scheduling_strategy=there).remote()
            actors.append((name, node, actor, actor.here.remote(folder)))
        facts, silent, answering = [], {}, []
        for name, node, actor, answer in actors:
            try:
                known = ray.get(answer, timeout=max(0.1, deadline - time.monotonic()))
                facts.append(HostFacts(**{**known, **_of_node(node), **_clock(actor, deadline), "name": name}))
                answering.append((name, actor))
            except ray.exceptions.GetTimeoutError:
                silent[name] = f"no answer within {timeout_s:g} s"
            except ray.exceptions.RayError as error:
                silent[name] = str(error).strip().splitlines()[-1][:300]
        return Answers(tuple(facts), silent, free, most, _bucket_attempts(bucket, answering) if bucket else {})
    finally:
        for _, _, actor, _ in actors:
            ray.kill(actor)
        ray.cloudpickle.unregister_pickle_by_value(host_facts)


def _names(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Unique names of the nodes: the host name, with address and port where needed."""
    names = [str(node["NodeManagerHostname"]) for node in nodes]
    for more in ("NodeManagerAddress", "NodeManagerPort"):
        times = Counter(names)
        names = [f"{name} {node[more]}" if times[name] > 1 else name for name, node in zip(names, nodes, strict=True)]
    return names


def _of_node(node: Mapping[str, Any]) -> dict[str, Any]:
    resources = node["Resources"]
    return {
        "address": node["NodeManagerAddress"],
        "cpus": resources.get("CPU", 0.0),
        "tpus": resources.get("TPU", 0.0),
        "store_bytes": int(resources.get("object_store_memory", 0)),
        "is_head": "node:__internal_head__" in resources,
    }


def _bucket_attempts(bucket: str, hosts: Sequence[tuple[str, Any]]) -> dict[str, dict[str, AccessFailure | None]]:
    """Let all hosts try the bucket at the same time."""
    environment = bucket_environment() | {"LEMUR_BUCKET_PATIENCE_S": str(CLIENT_S)}
    asked = [(name, actor.bucket.remote(bucket, environment)) for name, actor in hosts]
    deadline = time.monotonic() + CLIENTS_S
    attempts: dict[str, dict[str, AccessFailure | None]] = {}
    for name, answer in asked:
        try:
            clients = ray.get(answer, timeout=max(0.1, deadline - time.monotonic()))
            attempts[name] = {client: _failure(result) for client, result in clients.items()}
        except ray.exceptions.GetTimeoutError:
            silent = AccessFailure(BucketProblem.SILENT, f"no answer within {CLIENTS_S:g} s")
            attempts[name] = {"all clients": silent}
        except ray.exceptions.RayError as error:
            attempts[name] = {"all clients": _failure(str(error).strip().splitlines()[-1][:300])}
    return attempts


def _failure(result: AccessFailure | str | None) -> AccessFailure | None:
    """The result of one client; a host with an older project answers with a sentence, empty for success."""
    return AccessFailure(BucketProblem.REFUSED, result) if result and isinstance(result, str) else result or None


def _clock(actor: Any, deadline: float) -> dict[str, float]:
    """Clock offset of a host in seconds and its uncertainty, from the quickest of ``ROUNDS`` readings."""
    rounds = []
    for _ in range(ROUNDS):
        asked = time.time()
        theirs = ray.get(actor.clock.remote(), timeout=max(0.1, deadline - time.monotonic()))
        rounds.append((time.time() - asked, asked, theirs))
    took, asked, theirs = min(rounds)
    return {"clock_ahead_s": theirs - (asked + took / 2), "clock_unsure_s": took / 2}


def lock_of(lines: Sequence[str]) -> dict[str, str]:
    """Package -> version, from the lines of a lock file."""
    pins = (line.strip().split("==") for line in lines if "==" in line)
    return {name.lower().replace("_", "-"): version for name, version in pins}
