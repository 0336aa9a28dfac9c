"""Resources of GKE hosts that are allocatable to pods. Knows no manifest.

Cores and memory are from Compute Engine's list of machine types, reservations from GKE's page on node sizes (memory and
CPU reservations). The shares of the kernel and of system pods are assumptions.
"""

from __future__ import annotations

OF_CHIPS = {
    ("v4", 4): (240, 407), ("v5p", 4): (208, 448),
    ("v5e", 1): (24, 48), ("v5e", 4): (112, 192), ("v5e", 8): (224, 384),
    ("v6e", 1): (44, 176), ("v6e", 4): (180, 720), ("v6e", 8): (180, 1440),
}  # fmt: skip
"""(TPU generation, chips of a host) -> (cores, GiB) of the machine type."""
OF_GPUS = {
    ("nvidia-l4", 1): (32, 128), ("nvidia-l4", 2): (24, 96), ("nvidia-l4", 4): (48, 192), ("nvidia-l4", 8): (96, 384),
    ("nvidia-tesla-a100", 1): (12, 85), ("nvidia-tesla-a100", 2): (24, 170), ("nvidia-tesla-a100", 4): (48, 340),
    ("nvidia-tesla-a100", 8): (96, 680), ("nvidia-tesla-a100", 16): (96, 1360),
    ("nvidia-a100-80gb", 1): (12, 170), ("nvidia-a100-80gb", 2): (24, 340), ("nvidia-a100-80gb", 4): (48, 680),
    ("nvidia-a100-80gb", 8): (96, 1360),
    ("nvidia-h100-80gb", 1): (26, 234), ("nvidia-h100-80gb", 2): (52, 468), ("nvidia-h100-80gb", 4): (104, 936),
    ("nvidia-h100-80gb", 8): (208, 1872), ("nvidia-h100-mega-80gb", 8): (208, 1872),
    ("nvidia-h200-141gb", 8): (224, 2952),
}  # fmt: skip
"""(GKE's name of a GPU, GPUs of a host) -> (cores, GiB) of the largest such machine type. Others are not checked."""
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
