"""Rules for one group of pods: resources, placement and shutdown. Knows nothing of the job."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.checking.rules import Breach
from lemur_ray.train.pod.slices import Slice

MACHINES = tomllib.loads(Path(__file__).with_name("machines.toml").read_text(encoding="utf-8"))
"""chips or gpus -> TPU generation, or GKE's name of a GPU -> how many of them a host has -> (cores, GiB) of it."""
_OF_KERNEL = 0.025
"""Share of memory used by the kernel."""
_OF_SYSTEM = (1.0, 1.0)
"""Cores and GiB of GKE's own pods on every node."""
_MEMORY_RESERVED = ((4, 0.25), (4, 0.2), (8, 0.1), (112, 0.06), (float("inf"), 0.02))
_CPU_RESERVED = ((1, 0.06), (1, 0.01), (2, 0.005), (float("inf"), 0.0025))
"""Steps of (width in GiB or cores, reserved share of it)."""
_EVICTION_GIB = 0.1


def for_pods(cores: float, gib: float) -> tuple[float, float]:
    """(cores, GiB) that a single pod may request on a machine of ``cores`` and ``gib``."""
    gib *= 1 - _OF_KERNEL
    reserved = _reserved(gib, _MEMORY_RESERVED) + _EVICTION_GIB
    return cores - _reserved(cores, _CPU_RESERVED) - _OF_SYSTEM[0], gib - reserved - _OF_SYSTEM[1]


def _reserved(amount: float, steps: tuple[tuple[float, float], ...]) -> float:
    total = 0.0
    for width, share in steps:
        total += share * min(amount, width)
        amount -= min(amount, width)
    return total


GENERATIONS = {"tpu-v4-podslice": "v4", "tpu-v5p-slice": "v5p", "tpu-v5-lite-podslice": "v5e", "tpu-v6e-slice": "v6e"}
"""GKE's name of a TPU generation -> that of `slices`."""
ACCELERATOR, TOPOLOGY = "cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology"
GPU_KIND = "cloud.google.com/gke-accelerator"
SPOT = "cloud.google.com/gke-spot"
OF_ONE_HOST = ("TPU_NAME", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES")
"""Variables that differ between hosts or slices; GKE's webhook sets them unless they are set."""
TPU, GPU = "google.com/tpu", "nvidia.com/gpu"
DRAIN = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
"""Seconds that a Ray node drains when its pod is terminated; Ray Train learns of a preemption only by that."""
_DRAIN_S = 30.0
"""Ray's default of DRAIN."""
_LEAST_NOTICE_S = 60.0
"""Minimum DRAIN on spot capacity, to write a checkpoint."""
_IMAGE = re.compile(r"(?:.*/)?lemur-ray-(?P<kind>\w+)[:@](?P<build>.+)")
_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?")
_UNITS = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTP", 1)
}


@dataclass(frozen=True)
class Group:
    """A group of equal pods: the head of a Ray cluster, one group of its workers, or the pods of a Job or DaemonSet."""

    name: str
    spec: Mapping[str, Any]
    added_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the operator adds; an empty value stands for any."""

    @property
    def is_head(self) -> bool:
        return "groupName" not in self.spec

    @property
    def pod(self) -> Mapping[str, Any]:
        return dict((self.spec.get("template") or {}).get("spec") or {})

    @property
    def container(self) -> Mapping[str, Any]:
        """The first container, in which Ray runs."""
        return dict((self.pod.get("containers") or [{}])[0])

    @property
    def env(self) -> dict[str, str]:
        return {entry["name"]: str(entry.get("value", "")) for entry in self.container.get("env") or ()}

    @property
    def labels(self) -> Mapping[str, str]:
        template = self.spec.get("template") or {}
        return {**self.added_labels, **((template.get("metadata") or {}).get("labels") or {})}

    @property
    def image(self) -> tuple[str, str]:
        """(kind, tag or digest) of an image of the project, else two empty strings."""
        match = _IMAGE.fullmatch(str(self.container.get("image", "")))
        return (match["kind"], match["build"]) if match else ("", "")

    @property
    def accelerator(self) -> str:
        """Accelerator of the pods by their limits: tpu, gpu or cpu."""
        return "tpu" if TPU in self.limits else "gpu" if GPU in self.limits else "cpu"

    @property
    def limits(self) -> Mapping[str, Any]:
        return dict((self.container.get("resources") or {}).get("limits") or {})

    @property
    def selector(self) -> Mapping[str, str]:
        return dict(self.pod.get("nodeSelector") or {})

    @property
    def num_hosts(self) -> int:
        """Number of pods of all replicas."""
        return int(self.spec.get("replicas", 1)) * int(self.spec.get("numOfHosts", 1))

    def breach(self, rule: str, sentence: str) -> Breach:
        """A Breach of ``rule`` whose sentence names this group first."""
        return Breach(rule, f"{self.name}: {sentence}" if self.name else sentence)

    def amount(self, resource: str) -> float:
        """Limit of a resource for one pod; 0 if not set."""
        return quantity(str(self.limits.get(resource, 0))) or 0.0


def quantity(text: str) -> float | None:
    """Parse a Kubernetes quantity such as 500m or 40Gi as a number; None if it is invalid."""
    match = _QUANTITY.fullmatch(text)
    return float(match[1]) * _UNITS[match[2] or ""] if match else None


def groups(cluster: Mapping[str, Any]) -> list[Group]:
    """The head's group, then those of the workers."""
    workers = [Group(str(spec.get("groupName", "workers")), spec) for spec in cluster.get("workerGroupSpecs") or ()]
    return [Group("head", cluster.get("headGroupSpec") or {}), *workers]


def breaches(group: Group, *, autoscaler_v2: bool, scales: bool) -> Iterator[Breach]:
    """Yield a Breach for each rule that a group breaks. scales: it is autoscaled; autoscaler_v2: by version 2."""
    yield from _of_numbers(group, scales)
    yield from _of_resources(group)
    yield from _of_end(group)
    yield from _of_slice(group)
    yield from _of_gpus(group)
    yield from _of_rights(group)
    policy = group.pod.get("restartPolicy")
    if autoscaler_v2 and policy != "Never":
        yield group.breach("restart-policy", f"restartPolicy is {policy}: set Never, with autoscaler v2")


def _of_numbers(group: Group, scales: bool) -> Iterator[Breach]:
    if group.is_head:
        return
    least, now, most = (int(group.spec.get(key, 1)) for key in ("minReplicas", "replicas", "maxReplicas"))
    if not least <= now <= most:
        yield group.breach("replicas", f"replicas {now} is not between minReplicas {least} and maxReplicas {most}")
    elif TPU in group.limits and scales and least != most:
        yield group.breach("tpu-scaling", f"{least} to {most} slices: set minReplicas and maxReplicas to {now}")


def _of_resources(group: Group) -> Iterator[Breach]:
    resources = group.container.get("resources") or {}
    limits, requests = (dict(resources.get(side) or {}) for side in ("limits", "requests"))
    for key, value in {**limits, **requests}.items():
        if quantity(str(value)) is None:
            yield group.breach("quantity", f"{key} {value!r} is no quantity: 40Gi or 40G")
    for key in ("cpu", "memory", TPU, GPU):
        needed = key in ("cpu", "memory")
        if (needed and key not in limits) or str(limits.get(key)) != str(requests.get(key)):
            amounts = f"{key} {requests.get(key)} requested, limit {limits.get(key)}"
            yield group.breach("requests", f"{amounts}: set both alike")
    image = str(group.container.get("image", ""))
    if not re.search(r"@sha256:[0-9a-f]{64}$|:[^:/]*\d[^:/]*$", image):
        yield group.breach("image", f"image {image!r} has no version: give it a tag with one, or a digest")


def _of_end(group: Group) -> Iterator[Breach]:
    spot = group.selector.get(SPOT) == "true"
    if group.is_head and spot:
        yield Breach("head-spot", f"head: it asks for spot capacity: take nodeSelector {SPOT} out")
    elif group.is_head and not _keeps_off_spot(group.pod):
        yield Breach("head-spot", f"head: spot nodes may take it: require nodeAffinity {SPOT} DoesNotExist")
    tolerated = [t for t in group.pod.get("tolerations") or () if t.get("key") == SPOT]
    if spot and not tolerated:
        yield group.breach("toleration", f"nodeSelector {SPOT} without a toleration of it")
    drain = quantity(group.env.get(DRAIN, "")) or _DRAIN_S
    grace = float(group.pod.get("terminationGracePeriodSeconds", 30))
    if grace <= drain:
        amounts = f"terminationGracePeriodSeconds {grace:g}, {DRAIN} {drain:g}"
        yield group.breach("grace", f"{amounts}: grace must be longer")
    if spot and drain < _LEAST_NOTICE_S:
        yield group.breach("notice", f"{DRAIN} is {drain:g}: set {_LEAST_NOTICE_S:g} or more, to save in")


def _keeps_off_spot(pod: Mapping[str, Any]) -> bool:
    """Whether every node affinity term excludes spot nodes, which have no taint of their own."""
    node = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    away = {"key": SPOT, "operator": "DoesNotExist"}
    return bool(terms) and all(away in (term.get("matchExpressions") or ()) for term in terms)


def _of_slice(group: Group) -> Iterator[Breach]:
    topology, accelerator = group.selector.get(TOPOLOGY), group.selector.get(ACCELERATOR, "")
    chips = int(group.amount(TPU))
    if not topology and not chips:
        return
    if group.env.get("JAX_PLATFORMS", "").split(",")[0] != "tpu":
        yield group.breach("jax-platforms", f"JAX_PLATFORMS {group.env.get('JAX_PLATFORMS')}: set tpu,cpu")
    if int(group.spec.get("numOfHosts", 1)) > 1 and (named := [name for name in OF_ONE_HOST if name in group.env]):
        yield group.breach("worker-ids", f"its environment sets {', '.join(named)} alike on every host: take out")
    if not topology or accelerator not in GENERATIONS:
        selected = f"nodeSelector has accelerator {accelerator or None} and topology {topology}"
        yield group.breach("topology", f"{selected}: expected one of {', '.join(GENERATIONS)}, and a topology")
        return
    try:
        one = Slice.of(GENERATIONS[accelerator], topology)
    except ValueError as error:
        yield group.breach("topology", f"{error}")
        return
    hosts = int(group.spec.get("numOfHosts", 1))
    if (hosts, chips) != (one.num_hosts, one.chips_per_host):
        use = f"use {one.num_hosts} with {one.chips_per_host}"
        yield group.breach("topology", f"numOfHosts {hosts} with {TPU} {chips} cannot hold {one}: {use}")
        return
    yield from _of_capacity(group, f"{chips} chips of {one.name}", MACHINES["chips"][one.name][str(chips)])


def _of_gpus(group: Group) -> Iterator[Breach]:
    kind, gpus = group.selector.get(GPU_KIND, ""), int(group.amount(GPU))
    if machine := MACHINES["gpus"].get(kind, {}).get(str(gpus)):
        yield from _of_capacity(group, f"{gpus} {kind}", machine)


def _of_capacity(group: Group, what: str, machine: tuple[int, int]) -> Iterator[Breach]:
    """Breach if the pod exceeds a host of ``what``. machine: cores and GiB of that host."""
    cores, gib = for_pods(*machine)
    if group.amount("cpu") > cores or group.amount("memory") > gib * 2.0**30:
        host = f"a host of {what} has {machine[0]} and {machine[1]}Gi, of which {int(cores)} and {int(gib)}Gi are left"
        wanted = f"cpu {group.limits.get('cpu')}, memory {group.limits.get('memory')}"
        yield group.breach("room", f"{wanted}: {host} for it")


def _of_rights(group: Group) -> Iterator[Breach]:
    context = {**(group.pod.get("securityContext") or {}), **(group.container.get("securityContext") or {})}
    if context.get("runAsNonRoot") is not True or context.get("privileged"):
        yield group.breach("root", "securityContext lets it run as root: set runAsNonRoot, not privileged")
    if group.pod.get("serviceAccountName", "default") == "default":
        yield group.breach("service-account", "serviceAccountName is not set: set lemur (serviceaccount.yaml)")
    if "GOOGLE_APPLICATION_CREDENTIALS" in group.env or "AWS_SECRET_ACCESS_KEY" in group.env:
        yield group.breach("key-file", "its environment names a key: let serviceaccount.yaml reach the bucket")
