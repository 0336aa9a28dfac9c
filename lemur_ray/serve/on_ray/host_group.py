"""An engine over several hosts on Ray: what the replica reserves, and the followers it starts there.

Serve reserves one bundle a host, on as many hosts, and puts the replica into the first; the replica starts a follower
in each of the others and leads them (``lockstep.py``). They live and die together: Serve starts the whole group anew.
"""

from __future__ import annotations

import queue
import secrets
from typing import Any, NamedTuple

import jax
import ray
from ray._private.accelerators.tpu import infer_tpu_pod_type_from_topology
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from ray.util.tpu import get_tpu_worker_resources

from lemur_ray.model.compile_cache import cache_folder, use_compile_cache
from lemur_ray.ports import free_port
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
        """For ``serve.deployment``: the replica in the first bundle, every bundle on a host of its own."""
        options: dict[str, Any] = {"ray_actor_options": self.actor_options(0)}
        if len(self.bundles) > 1:
            options |= {"placement_group_bundles": self.bundles, "placement_group_strategy": "STRICT_SPREAD"}
            options |= {"placement_group_bundle_label_selector": self.labels} if self.labels else {}
        elif self.labels:
            options["ray_actor_options"]["label_selector"] = self.labels[0]
        return options


def lacking(reserved: Reserved, nodes: list[dict[str, Any]]) -> list[dict[str, float]]:
    """The bundles for which the cluster has no host of its own, busy or not. nodes: as ``ray.nodes()`` lists them."""
    free, missing = [node for node in nodes if node["Alive"]], []
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


def reserve(hosts: Hosts, num_cpus: float, tensor_parallel: int) -> Reserved:
    """What to ask of Ray. Raises ValueError where hosts and devices do not agree."""
    cpus = {"CPU": num_cpus}
    if hosts.topology:
        num, each = get_tpu_worker_resources(hosts.topology, hosts.accelerator_type, cpus)
        if hosts.num not in (1, num) or tensor_parallel not in (0, num * each["TPU"]):
            raise ValueError(
                f"hosts.num is {hosts.num} and tensor_parallel {tensor_parallel}, but {hosts.topology} of "
                f"{hosts.accelerator_type} has {num} host(s) with {each['TPU']:g} chips: use --hosts.num {num} "
                f"--engine.tensor-parallel {num * each['TPU']:g}"
            )
        pod = infer_tpu_pod_type_from_topology(hosts.topology, hosts.accelerator_type)
        bundles = [{**each, **({f"TPU-{pod}-head": 1.0} if rank == 0 else {})} for rank in range(num)]
        return Reserved(bundles, [{_POD_TYPE: str(pod), _WORKER: str(rank)} for rank in range(num)])
    if hosts.use_gpu and (tensor_parallel < hosts.num or tensor_parallel % hosts.num):
        raise ValueError(
            f"tensor_parallel {tensor_parallel} GPUs do not spread over {hosts.num} host(s): use a multiple of "
            f"{hosts.num}, as many on each as it has"
        )
    if hosts.use_gpu:
        cpus["GPU"] = tensor_parallel // hosts.num
    return Reserved([dict(cpus) for _ in range(hosts.num)], [])


@ray.remote(max_restarts=0)
class Follower:
    """A process on another host of the group."""

    def slice_name(self) -> str:
        """Of the TPU slice this host belongs to; empty where it belongs to none."""
        return _slice_name()

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
    """Start the followers in the bundles of this replica's placement group and join them to one jax.distributed.

    Before the first use of devices here. Raises RuntimeError where they do not come together, saying why.
    """
    num, ip = len(reserved.bundles), ray.util.get_node_ip_address()
    secret, coordinator = secrets.token_bytes(32), f"{ip}:{free_port(ip)}"
    if (group := get_current_placement_group()) is None:
        raise RuntimeError("this process has no placement group: start it with Reserved.deployment_options")
    actors = []
    for rank in range(1, num):
        here = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
        actors.append(Follower.options(scheduling_strategy=here, **reserved.actor_options(rank)).remote())  # type: ignore[attr-defined]
    slices = {_slice_name(), *ray.get([actor.slice_name.remote() for actor in actors], timeout=GATHER_TIMEOUT_S)}
    if len(slices) > 1:
        raise RuntimeError(
            f"the hosts belong to the TPU slices {', '.join(sorted(slices))}, which are not wired to each other: serve "
            "from a cluster with one free slice of this type"
        )
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


def _join(coordinator: str, num: int, rank: int) -> None:
    jax.distributed.initialize(
        coordinator,
        num,
        rank,
        initialization_timeout=GATHER_TIMEOUT_S,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
        shutdown_timeout_seconds=5,
    )


def _slice_name() -> str:
    return str(ray.get_runtime_context().get_node_labels().get(_SLICE, ""))
