"""An engine over several hosts on Ray: reserved resources, and the followers that the replica starts.

Serve reserves one bundle per host and puts the replica into the first; the replica starts a follower in each of the
others and leads them (``lockstep.py``). Of a TPU slice over several hosts, Serve reserves only worker 0; the replica
reserves the others (``_follower_placement``). If one process dies, Serve restarts the whole group."""

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
from lemur_ray.serve.compute.wire import FollowerListener, Line, connect
from lemur_ray.serve.config import EngineOptions, Hosts
from lemur_ray.serve.loading import options_here
from lemur_ray.weights.open_model import open_chat_model

GATHER_TIMEOUT_S = 300
"""Seconds within which the followers must start and connect."""
HEARTBEAT_TIMEOUT_S = 60
"""Seconds without a heartbeat after which a process counts as lost, which ends the whole group."""
_SLICE, _POD_TYPE, _WORKER = "ray.io/tpu-slice-name", "ray.io/tpu-pod-type", "ray.io/tpu-worker-id"


class Reserved(NamedTuple):
    """Resources that one engine reserves on Ray, one bundle (amount by resource) for each host."""

    bundles: list[dict[str, float]]
    labels: list[dict[str, str]]
    """Labels that the node of each bundle must have; empty: any node"""

    def actor_options(self, rank: int) -> dict[str, Any]:
        """Options of a Ray actor that takes all of the bundle of host ``rank`` (from 0)."""
        rest = dict(self.bundles[rank])
        options: dict[str, Any] = {"num_cpus": rest.pop("CPU")}
        if gpus := rest.pop("GPU", 0):
            options["num_gpus"] = gpus
        return {**options, "resources": rest} if rest else options

    def deployment_options(self) -> dict[str, Any]:
        """Options of ``serve.deployment``: they reserve all bundles, each on a host of its own, the first one for the
        replica. For a TPU slice they reserve only the bundle of the replica, on worker 0 of some slice; ``gather``,
        called in the replica, reserves the others on the hosts of that slice."""
        options: dict[str, Any] = {"ray_actor_options": self.actor_options(0)}
        if self.labels:
            options["ray_actor_options"]["label_selector"] = self.labels[0]
        elif len(self.bundles) > 1:
            options |= {"placement_group_bundles": self.bundles, "placement_group_strategy": "STRICT_SPREAD"}
        return options


def missing_bundles(reserved: Reserved, nodes: Sequence[dict[str, Any]], replicas: int = 1) -> list[dict[str, float]]:
    """Bundles of ``replicas`` engines without a host in the cluster, busy or not; [] if all have one. For a TPU slice:
    those missing in the slice that lacks fewest. nodes: as from ``ray.nodes()``. reserved: resources of one engine."""
    hosts = [{**node, "Resources": dict(node["Resources"])} for node in nodes if node["Alive"]]
    groups = [hosts]
    if reserved.labels:
        names = {get_tpu_slice_name_from_node(host) for host in hosts}
        groups = [[], *([host for host in hosts if get_tpu_slice_name_from_node(host) == name] for name in names)]
    missing: list[dict[str, float]] = []
    for _ in range(replicas):
        lacking, taken = min((_placed(reserved, group) for group in groups), key=lambda found: len(found[0]))
        missing += lacking
        for host, bundle in zip(taken, reserved.bundles, strict=False) if not lacking else ():
            for name, amount in bundle.items():
                host["Resources"][name] -= amount
    return missing


def _placed(reserved: Reserved, hosts: Sequence[dict[str, Any]]) -> tuple[list[dict[str, float]], list[dict[str, Any]]]:
    """(bundles of one engine that no host has, a host of its own for each of the others)."""
    missing, taken = [], list[dict[str, Any]]()
    for rank, bundle in enumerate(reserved.bundles):
        labels = (reserved.labels[rank] if reserved.labels else {}).items()
        fitting = (
            host
            for host in hosts
            if all(host["Resources"].get(name, 0) >= amount for name, amount in bundle.items())
            and labels <= host["Labels"].items()
            and not any(host is other for other in taken)
        )
        if (match := next(fitting, None)) is None:
            missing.append(bundle)
        else:
            taken.append(match)
    return missing, taken


def gpus_of(nodes: Sequence[dict[str, Any]]) -> list[int]:
    """Number of GPUs of each live host that has some, most first; [] for none. nodes: as from ``ray.nodes()``."""
    return sorted(int(n["Resources"].get("GPU", 0)) for n in nodes if n["Alive"] and n["Resources"].get("GPU"))[::-1]


def reserve(hosts: Hosts, num_cpus: float, tensor_parallel: int, gpus: Sequence[int] = ()) -> Reserved:
    """Resources to reserve on Ray for one engine; nothing is reserved yet. num_cpus: of each host. tensor_parallel:
    devices of all hosts together; 0: all that they have. gpus: number on each host of the cluster that has some, most
    first. GPUs are reserved if the cluster has any, because an actor that reserves none sees none. Raises ValueError if
    hosts and devices do not match."""
    cpus = {"CPU": num_cpus}
    if hosts.topology:
        return _slice(hosts, cpus, tensor_parallel)
    if hosts.on_gpus(bool(gpus)):
        # By default the same number on each host: as many as the one with the fewest has.
        num = tensor_parallel or hosts.num * (gpus[hosts.num - 1] if hosts.num <= len(gpus) else 0)
        if num < hosts.num or num % hosts.num:
            raise ValueError(
                f"tensor_parallel {num} GPUs do not spread over {hosts.num} host(s): use a multiple of "
                f"{hosts.num}, as many on each as it has, or JAX_PLATFORMS=cpu"
            )
        cpus["GPU"] = num // hosts.num
    return Reserved([dict(cpus) for _ in range(hosts.num)], [])


def _slice(hosts: Hosts, cpus: Mapping[str, float], tensor_parallel: int) -> Reserved:
    """Resources of a slice as in ``ray.util.tpu``: holding the head resource of worker 0 reserves a slice of hosts."""
    num, each = get_tpu_worker_resources(hosts.topology, hosts.accelerator_type, dict(cpus))
    if hosts.num not in (1, num) or tensor_parallel not in (0, num * each["TPU"]):
        raise ValueError(
            f"hosts.num is {hosts.num} and tensor_parallel {tensor_parallel}, but {hosts.topology} of "
            f"{hosts.accelerator_type} has {num} host(s) with {each['TPU']:g} chips: use --hosts.num {num} "
            f"--engine.tensor-parallel {num * each['TPU']:g}"
        )
    pod = str(infer_tpu_pod_type_from_topology(hosts.topology, hosts.accelerator_type))
    if num == 1:  # a single host has no worker number and not always a slice name
        return Reserved([each], [{_POD_TYPE: pod}])
    bundles = [{**each, **({f"TPU-{pod}-head": 1.0} if rank == 0 else {})} for rank in range(num)]
    return Reserved(bundles, [{_POD_TYPE: pod, _WORKER: str(rank)} for rank in range(num)])


@ray.remote(max_restarts=0)
class Follower:
    """A Ray actor on one of the other hosts of a group, which computes that host's part of the model."""

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
        """Connect to the leader, load this host's part of the model, and compute it until the leader ends; errors as
        ``lockstep.follow``. address, secret: of the leader's listener. coordinator: host:port of jax.distributed, in
        which this is process ``rank`` of ``num``. spec: as in ``weights.open_model``."""
        line = connect(address, secret)
        _join(coordinator, num, rank)
        use_compile_cache(cache_folder())
        options = options_here(open_chat_model(spec).source.config, options)
        follow(line, spec, options, open_chat_model)


class Gathered(NamedTuple):
    """The followers of a replica: connections to them, and their Ray actors."""

    lines: list[Line]
    actors: list[Any]
    """Held because Ray ends an actor without references"""


def gather(spec: str, options: EngineOptions, reserved: Reserved) -> Gathered:
    """Start the followers on the other hosts of this replica, and join all processes in one jax.distributed.
    Must be called before this process first uses devices. spec: the model that the followers load, as in
    ``weights.open_model``. reserved: resources of all hosts. Raises RuntimeError with the reason if a follower does not
    join within 300 s."""
    num, ip = len(reserved.bundles), ray.util.get_node_ip_address()
    secret, coordinator = secrets.token_bytes(32), f"{ip}:{free_port(ip)}"
    group, first = _follower_placement(reserved)
    actors = []
    for rank in range(1, num):
        here = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=first + rank - 1)
        actors.append(Follower.options(scheduling_strategy=here, **reserved.actor_options(rank)).remote())  # type: ignore[attr-defined]
    listener = FollowerListener(ip, secret)
    try:
        running = [
            actor.follow.remote(listener.address, secret, coordinator, num, rank, spec, options)
            for rank, actor in enumerate(actors, 1)
        ]
        lines: list[Line] = []
        for _ in range(GATHER_TIMEOUT_S):
            try:
                lines.append(listener.next(1.0))
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
        listener.close()
    _join(coordinator, num, 0)
    return Gathered(lines, actors)


def _follower_placement(reserved: Reserved) -> tuple[PlacementGroup, int]:
    """Placement group of the followers, and the bundle index of the first one. Raises RuntimeError.
    For a slice, as Ray reserves one for training (``ray.util.tpu.SlicePlacementGroup``): this process holds the head
    resource of worker 0, which reserves the slice, and takes the hosts with that slice's name. The group ends with this
    process. A replica thus never spans two slices, which have no interconnect."""
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
