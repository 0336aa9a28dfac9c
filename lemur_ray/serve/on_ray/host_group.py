"""An engine over several hosts on Ray: what the replica reserves, and the followers it starts there.

Serve reserves one bundle a host, on as many hosts, and puts the replica into the first; the replica starts a follower
in each of the others and leads them (``lockstep.py``). Of a TPU slice over several hosts Serve reserves worker 0
alone, and the replica the others: see ``_others``. They live and die together: Serve starts the whole group anew.
"""

from __future__ import annotations

import queue
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import ray
from ray._private.accelerators.tpu import infer_tpu_pod_type_from_topology
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    placement_group,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from ray.util.tpu import get_tpu_nodes_for_slice, get_tpu_slice_name_from_node, get_tpu_worker_resources

from lemur_ray.host.ports import free_port
from lemur_ray.model.compile_cache import cache_folder, use_compile_cache
from lemur_ray.serve.compute.lockstep import follow
from lemur_ray.serve.compute.wire import Exchange, Line, connect
from lemur_ray.serve.config import EngineOptions, Hosts
from lemur_ray.weights.open_model import open_chat_model

GATHER_TIMEOUT_S = 300
"""Seconds that the followers have to start and to find each other."""
HEARTBEAT_TIMEOUT_S = 60
"""Seconds after which a process that stands still, its connections open, counts as lost: then all of them end."""

_SLICE, _POD_TYPE, _WORKER = "ray.io/tpu-slice-name", "ray.io/tpu-pod-type", "ray.io/tpu-worker-id"


class Reserved(NamedTuple):
    """What an engine takes of the cluster, host by host."""

    bundles: list[dict[str, float]]
    labels: list[dict[str, str]]
    """What the node of each bundle must be called; empty: any will do"""

    def actor_options(self, rank: int) -> dict[str, Any]:
        """The whole bundle of a host, as options of the actor there."""
        rest = dict(self.bundles[rank])
        options: dict[str, Any] = {"num_cpus": rest.pop("CPU")}
        if gpus := rest.pop("GPU", 0):
            options["num_gpus"] = gpus
        return {**options, "resources": rest} if rest else options

    def deployment_options(self) -> dict[str, Any]:
        """For ``serve.deployment``: the replica in the first bundle, every bundle on a host of its own.

        Of a slice: the replica on worker 0. What the others take depends on whose worker 0 that is.
        """
        options: dict[str, Any] = {"ray_actor_options": self.actor_options(0)}
        if self.labels:
            options["ray_actor_options"]["label_selector"] = self.labels[0]
        elif len(self.bundles) > 1:
            options |= {"placement_group_bundles": self.bundles, "placement_group_strategy": "STRICT_SPREAD"}
        return options


def lacking(reserved: Reserved, nodes: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    """The bundles for which the cluster has no host of its own, busy or not; of a slice, in the slice that has most.

    nodes: as ``ray.nodes()`` lists them.
    """
    alive = [node for node in nodes if node["Alive"]]
    if not reserved.labels:
        return _missing(reserved, alive)
    names = {get_tpu_slice_name_from_node(node) for node in alive}
    slices = [[node for node in alive if get_tpu_slice_name_from_node(node) == name] for name in names]
    return min((_missing(reserved, one) for one in [[], *slices]), key=len)


def _missing(reserved: Reserved, nodes: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    free, missing = list(nodes), []
    for rank, bundle in enumerate(reserved.bundles):
        labels = (reserved.labels[rank] if reserved.labels else {}).items()
        fitting = (
            node
            for node in free
            if all(node["Resources"].get(name, 0) >= amount for name, amount in bundle.items())
            and labels <= node["Labels"].items()
        )
        if (found := next(fitting, None)) is None:
            missing.append(bundle)
        else:
            free.remove(found)
    return missing


def gpus_of(nodes: Sequence[dict[str, Any]]) -> list[int]:
    """GPUs of each host that has some, most first. nodes: as ``ray.nodes()`` lists them."""
    return sorted(int(n["Resources"].get("GPU", 0)) for n in nodes if n["Alive"] and n["Resources"].get("GPU"))[::-1]


def reserve(hosts: Hosts, num_cpus: float, tensor_parallel: int, gpus: Sequence[int] = ()) -> Reserved:
    """What to ask of Ray. gpus: of each host of the cluster that has some, most first.

    An actor that asks for no GPU sees none, so they are asked for wherever there are some and nobody said otherwise.
    Raises ValueError where hosts and devices do not agree.
    """
    cpus = {"CPU": num_cpus}
    if hosts.topology:
        return _slice(hosts, cpus, tensor_parallel)
    if hosts.on_gpus(bool(gpus)):
        # All there are, on as many hosts: as many on each as the last of them has.
        num = tensor_parallel or hosts.num * (gpus[hosts.num - 1] if hosts.num <= len(gpus) else 0)
        if num < hosts.num or num % hosts.num:
            raise ValueError(
                f"tensor_parallel {num} GPUs do not spread over {hosts.num} host(s): use a multiple of "
                f"{hosts.num}, as many on each as it has, or JAX_PLATFORMS=cpu"
            )
        cpus["GPU"] = num // hosts.num
    return Reserved([dict(cpus) for _ in range(hosts.num)], [])


def _slice(hosts: Hosts, cpus: Mapping[str, float], tensor_parallel: int) -> Reserved:
    """A slice as ``ray.util.tpu`` describes it: what tells who has it, where it spans hosts, is the head resource of
    its worker 0."""
    num, each = get_tpu_worker_resources(hosts.topology, hosts.accelerator_type, dict(cpus))
    if hosts.num not in (1, num) or tensor_parallel not in (0, num * each["TPU"]):
        raise ValueError(
            f"hosts.num is {hosts.num} and tensor_parallel {tensor_parallel}, but {hosts.topology} of "
            f"{hosts.accelerator_type} has {num} host(s) with {each['TPU']:g} chips: use --hosts.num {num} "
            f"--engine.tensor-parallel {num * each['TPU']:g}"
        )
    pod = str(infer_tpu_pod_type_from_topology(hosts.topology, hosts.accelerator_type))
    if num == 1:  # a host of its own has neither a number nor, everywhere, a slice's name
        return Reserved([each], [{_POD_TYPE: pod}])
    bundles = [{**each, **({f"TPU-{pod}-head": 1.0} if rank == 0 else {})} for rank in range(num)]
    return Reserved(bundles, [{_POD_TYPE: pod, _WORKER: str(rank)} for rank in range(num)])


@ray.remote(max_restarts=0)
class Follower:
    """A process on another host of the group."""

    def follow(
        self,
        address: tuple[str, int],
        secret: bytes,
        coordinator: str,
        num: int,
        rank: int,
        spec: str,
        options: EngineOptions,
    ) -> None:
        """Until the leader ends."""
        line = connect(address, secret)
        _join(coordinator, num, rank)
        use_compile_cache(cache_folder())
        follow(line, spec, options, open_chat_model)


class Gathered(NamedTuple):
    """The followers of a replica."""

    lines: list[Line]
    actors: list[Any]
    """To be held: Ray ends an actor that nobody knows any more"""


def gather(spec: str, options: EngineOptions, reserved: Reserved) -> Gathered:
    """Start the followers on the other hosts of this replica and join them to one jax.distributed.

    Before the first use of devices here. Raises RuntimeError where they do not come together, saying why.
    """
    num, ip = len(reserved.bundles), ray.util.get_node_ip_address()
    secret, coordinator = secrets.token_bytes(32), f"{ip}:{free_port(ip)}"
    group, first = _others(reserved)
    actors = []
    for rank in range(1, num):
        here = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=first + rank - 1)
        actors.append(Follower.options(scheduling_strategy=here, **reserved.actor_options(rank)).remote())  # type: ignore[attr-defined]
    exchange = Exchange(ip, secret)
    try:
        running = [
            actor.follow.remote(exchange.address, secret, coordinator, num, rank, spec, options)
            for rank, actor in enumerate(actors, 1)
        ]
        lines: list[Line] = []
        for _ in range(GATHER_TIMEOUT_S):
            try:
                lines.append(exchange.next(1.0))
            except queue.Empty:
                for ended in ray.wait(running, timeout=0)[0]:
                    ray.get(ended)
            if len(lines) == num - 1:
                break
        else:
            raise RuntimeError(f"{len(lines)} of {num - 1} followers came within {GATHER_TIMEOUT_S} s")
    except ray.exceptions.RayError as error:
        raise RuntimeError(f"a follower could not start: {error}") from error
    finally:
        exchange.close()
    _join(coordinator, num, 0)
    return Gathered(lines, actors)


def _others(reserved: Reserved) -> tuple[PlacementGroup, int]:
    """Where the followers go: a placement group, and the bundle of the first of them. Raises RuntimeError.

    Of a slice, as Ray reserves one for training (``ray.util.tpu.SlicePlacementGroup``): this process holds the head
    resource of worker 0, and with it the slice; the hosts with that slice's name are then its own. The group ends with
    this process. So a replica is never put together of two slices, which are not wired to each other.
    """
    if not reserved.labels:
        if (group := get_current_placement_group()) is None:
            raise RuntimeError("this process has no placement group: start it with Reserved.deployment_options")
        return group, 1
    name = str(ray.get_runtime_context().get_node_labels().get(_SLICE, ""))
    num, there = len(reserved.bundles), len(get_tpu_nodes_for_slice(name))
    if there < num:
        raise RuntimeError(f"of the TPU slice {name!r} {there} of {num} hosts are there: it must be whole")
    labels = [{**one, _SLICE: name} for one in reserved.labels[1:]]
    group = placement_group(reserved.bundles[1:], "STRICT_SPREAD", bundle_label_selector=labels)
    if not group.wait(GATHER_TIMEOUT_S):
        remove_placement_group(group)
        raise RuntimeError(
            f"hosts of the TPU slice {name} were not free for {GATHER_TIMEOUT_S} s, though its head was: end what uses "
            "its chips without having reserved the slice"
        )
    return group, 0


def _join(coordinator: str, num: int, rank: int) -> None:
    jax.distributed.initialize(
        coordinator,
        num,
        rank,
        initialization_timeout=GATHER_TIMEOUT_S,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
        shutdown_timeout_seconds=5,
    )
