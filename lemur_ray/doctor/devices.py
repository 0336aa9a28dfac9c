"""Counts of cores, GPUs and TPU chips, and their memory, of this machine or of a cluster.

Reads system files and the output of nvidia-smi; starts neither jax nor Ray."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lemur_ray.doctor.machine import Machine
from lemur_ray.doctor.resources import available_memory, usable_cores

MIB = 2**20
TOPOLOGY_LABEL = "ray.io/tpu-topology"


@dataclass(frozen=True)
class Devices:
    """Devices of a machine or cluster. ``memory_bytes``: free main memory; ``gpu_bytes``: memory of all GPUs together;
    None if unknown. ``tpus``: chips."""

    cpus: float
    gpus: int = 0
    tpus: int = 0
    memory_bytes: int | None = None
    gpu_bytes: int | None = None
    in_cluster: bool = False
    """Whether these are the devices of a whole cluster, not of this machine."""
    tpu_hosts: Mapping[str, int] = field(default_factory=dict)
    """Topology of a TPU slice -> number of its hosts; empty if unknown or if the cluster may grow."""

    @property
    def where(self) -> str:
        """Whose devices these are, for messages."""
        return "the cluster" if self.in_cluster else "this machine"

    def __str__(self) -> str:
        return f"{self.where} has {self.cpus:g} CPU cores, {self.gpus} GPUs and {self.tpus} TPU chips"


def machine_devices(machine: Machine) -> Devices:
    """Devices of this machine that this process may use: cores, GPUs and TPU chips, and their memory."""
    gpus = _gpu_bytes(machine)
    return Devices(
        cpus=usable_cores(machine),
        gpus=len(gpus),
        tpus=len(tpu_chips(machine)),
        memory_bytes=available_memory(machine),
        gpu_bytes=sum(gpus) if gpus else None,
    )


def cluster_devices(
    resources: Mapping[str, float], most: Mapping[str, float] | None, nodes: Sequence[Mapping[str, Any]] = ()
) -> Devices:
    """The devices of a cluster. ``resources``: from ``ray.cluster_resources()``, such as {"CPU": 8}. ``most``: their
    upper limits if the cluster autoscales, else None. ``nodes``: from ``ray.nodes()``."""
    has = {name: max(resources.get(name, 0), (most or {}).get(name, 0)) for name in ("CPU", "GPU", "TPU")}
    grows = has["TPU"] > resources.get("TPU", 0)
    topologies = [node.get("Labels", {}).get(TOPOLOGY_LABEL, "") for node in nodes if node.get("Alive")]
    hosts = Counter() if grows else Counter(filter(None, topologies))
    return Devices(has["CPU"], int(has["GPU"]), int(has["TPU"]), in_cluster=True, tpu_hosts=hosts)


def tpu_chips(machine: Machine) -> list[str]:
    """Sorted paths of the device files of TPU chips on this machine; empty without any."""
    files = [*(machine.system / "dev").glob("accel*"), *(machine.system / "dev/vfio").glob("[0-9]*")]
    return sorted(map(str, files))


def _gpu_bytes(machine: Machine) -> list[int]:
    if not machine.which("nvidia-smi"):
        return []
    code, output = machine.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"], 10)
    return [int(line) * MIB for line in output.splitlines() if line.strip().isdigit()] if code == 0 else []
