"""GPU hosts as numbers: NVLink connects the GPUs of a host, a network the hosts. Knows nothing of Ray and of jax."""

import dataclasses
import difflib
import math
import re
from dataclasses import dataclass

from lemur_ray.config import MeshConfig
from lemur_ray.train.pod.chips import CHIPS
from lemur_ray.train.pod.slices import Slice, parse_slice

GPUS = tuple(name for name, chip in CHIPS.items() if chip.network_bytes_per_s)
"""Names of GPUs in a topology of ``plan_pod.py``."""
PER_HOST = (1, 2, 4, 8)
"""Numbers of GPUs that a host may have."""


@dataclass(frozen=True)
class GpuHosts:
    """Equal hosts of GPUs; a worker of a run owns one GPU."""

    name: str
    """One of GPUS, for example h100."""
    num_hosts: int
    chips_per_host: int

    @property
    def topology(self) -> str:
        return f"{self.num_hosts}x{self.chips_per_host}" if self.num_hosts > 1 else str(self.chips_per_host)

    @property
    def num_chips(self) -> int:
        return self.num_hosts * self.chips_per_host

    def devices_of(self, mesh: MeshConfig) -> int:
        """Number of devices of a run: all GPUs; ``mesh.dcn`` divides them."""
        return self.num_chips

    @property
    def tp_within(self) -> int:
        """Number of devices within which tensor parallelism stays (``mesh.tp`` must divide it): a host's GPUs."""
        return self.chips_per_host

    def mesh_of(self, mesh: MeshConfig) -> MeshConfig:
        """``mesh`` with one worker per GPU. Raises ValueError if tp does not divide the GPUs of a host: the products of
        every layer would wait for the network."""
        if self.chips_per_host % mesh.tp:
            choices = ", ".join(str(n) for n in PER_HOST if n <= self.chips_per_host)
            raise ValueError(
                f"mesh.tp {mesh.tp} does not divide the {self.chips_per_host} GPUs of a host of {self}: its products "
                f"would wait for the network between hosts; choose one of {choices}"
            )
        return dataclasses.replace(
            mesh, use_gpu=True, use_tpu=False, topology="", accelerator_type="", num_workers=self.num_chips
        )

    def __str__(self) -> str:
        return f"{self.num_chips} {self.name.upper()}, {self.chips_per_host} per host"


Devices = Slice | GpuHosts


def parse_devices(text: str) -> Devices:
    """Parse ``v4:4x8x8`` as TPU slice, ``h100:8`` and ``h100:2x8`` (hosts x GPUs) as GPU hosts. Raises ValueError."""
    name, _, topology = text.strip().lower().partition(":")
    if name not in GPUS:
        if near := difflib.get_close_matches(name, GPUS, n=1, cutoff=0.7):
            raise ValueError(f"topology is {text!r}: did you mean {near[0]!r} (known: {', '.join(GPUS)})")
        return parse_slice(text)
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)?", topology):
        raise ValueError(f"topology is {text!r}: expected {name}:GPUS or {name}:HOSTSxGPUS, for example {name}:2x8")
    *hosts, gpus = map(int, topology.split("x"))
    if gpus not in PER_HOST:
        raise ValueError(f"topology is {text!r}: a host has {', '.join(map(str, PER_HOST))} GPUs, not {gpus}")
    return GpuHosts(name, math.prod(hosts), gpus)
