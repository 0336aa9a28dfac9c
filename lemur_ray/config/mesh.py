"""Mesh options: workers requested from Ray and the mesh over their devices. Knows neither Ray nor jax."""

import math
from dataclasses import dataclass

from lemur_ray.config.model import ModelConfig
from lemur_ray.config.ranges import COUNT, FROM_ZERO, check_ranges

FEED_CPUS = 0.1
"""CPU cores reserved by a Ray Data task that reads rows for a worker. A run waits for ever if they are never free."""


@dataclass(frozen=True)
class MeshConfig:
    """Workers requested from Ray, and the mesh over their devices."""

    num_workers: int = 1
    """Number of Ray Train workers, one per host; TPU: hosts per slice x slices."""
    min_workers: int = 0
    """Minimum workers of an elastic run, which continues while hosts are missing and grows back when they return; TPU:
    whole slices. 0: always num_workers."""
    resize_check_s: float = 60.0
    """Seconds between two checks whether a run that lost hosts can grow back."""
    use_tpu: bool = False
    """Workers are hosts of a TPU slice."""
    use_gpu: bool = False
    """Workers own one GPU each."""
    topology: str = ""
    """TPU slice topology, for example 4x8x8."""
    accelerator_type: str = ""
    """Ray's name of the TPU generation, for example TPU-V4."""
    cpus_per_worker: float = 1.0
    """CPU cores reserved for one worker (XLA uses every core of the host regardless)."""
    dcn: int = 1
    """Number of slices (data parallel over the data-centre network); the batch does not change. If it does not divide,
    it is padded by up to an eighth with rows of weight 0: 1,024 rows on three slices of 64 shares become 1,152."""
    fsdp: int = -1
    """Number of devices that parameters and batch are sharded over; -1: all remaining ones."""
    tp: int = 1
    """Number of devices that share one matmul."""

    def __post_init__(self) -> None:
        check_ranges(self, num_workers=COUNT, dcn=COUNT, tp=COUNT)
        check_ranges(self, min_workers=FROM_ZERO, resize_check_s=FROM_ZERO, cpus_per_worker=FROM_ZERO)
        if self.fsdp != -1:
            check_ranges(self, fsdp=COUNT)


def axis_sizes(mesh: MeshConfig, num_devices: int, spelled: str = "") -> tuple[int, int, int]:
    """Sizes of the mesh axes (dcn, fsdp, tp); ``fsdp`` -1 takes the devices left by the other two.
    spelled: name of the devices in an error. Raises ValueError if the product is not ``num_devices``."""
    rest = mesh.dcn * mesh.tp
    fsdp = mesh.fsdp if mesh.fsdp > 0 else num_devices // rest
    if fsdp * rest != num_devices:
        left = f"dcn x tp that divides {num_devices}" if num_devices % rest else f"fsdp {num_devices // rest}"
        devices = spelled or f"{num_devices} devices"
        raise ValueError(
            f"mesh dcn {mesh.dcn} x fsdp {mesh.fsdp} x tp {mesh.tp} does not fill {devices}: use {left}"
            + (", or -1 for what is left" if mesh.fsdp > 0 else "")
        )
    return mesh.dcn, fsdp, mesh.tp


def check_heads(model: ModelConfig, tp: int) -> None:
    """Raises ValueError with the possible values if ``tp`` does not divide the heads, whatever the devices are."""
    heads = math.gcd(model.num_heads, model.num_kv_heads)
    if heads % tp:
        divisors = [str(n) for n in range(1, heads + 1) if heads % n == 0]
        raise ValueError(
            f"mesh.tp {tp} does not divide model.num_heads {model.num_heads} and model.num_kv_heads "
            f"{model.num_kv_heads}: choose one of {', '.join(divisors)}"
        )
