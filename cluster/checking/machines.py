"""What a host of GKE has for pods: its machine, less what the node keeps. Knows no manifest.

Cores and memory are those of Compute Engine's list of machine types; what is kept follows GKE's page on the sizes of
nodes (memory and CPU reservations). What the kernel and the node's own pods take is assumed.
"""

from __future__ import annotations

OF_CHIPS = {
    ("v4", 4): (240, 407), ("v5p", 4): (208, 448),
    ("v5e", 1): (24, 48), ("v5e", 4): (112, 192), ("v5e", 8): (224, 384),
    ("v6e", 1): (44, 176), ("v6e", 4): (180, 720), ("v6e", 8): (180, 1440),
}  # fmt: skip
"""Generation, chips of a host -> cores and GiB of the machine that has so many."""
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
"""GKE's name of a GPU, how many of a host -> cores and GiB of the largest machine that has so many. Others are not
looked at."""
_OF_KERNEL = 0.025
"""Share of the memory."""
_OF_SYSTEM = (1.0, 1.0)
"""Cores and GiB of the pods that GKE itself has on every node."""
_MEMORY_KEPT = ((4, 0.25), (4, 0.2), (8, 0.1), (112, 0.06), (float("inf"), 0.02))
_CPU_KEPT = ((1, 0.06), (1, 0.01), (2, 0.005), (float("inf"), 0.0025))
"""So many of the first GiB or cores, and the share of them that is kept."""
_EVICTION_GIB = 0.1


def for_pods(cores: float, gib: float) -> tuple[float, float]:
    """Cores and GiB that a pod may ask for on a machine that it has alone."""
    gib *= 1 - _OF_KERNEL
    kept = _kept(gib, _MEMORY_KEPT) + _EVICTION_GIB
    return cores - _kept(cores, _CPU_KEPT) - _OF_SYSTEM[0], gib - kept - _OF_SYSTEM[1]


def _kept(amount: float, steps: tuple[tuple[float, float], ...]) -> float:
    total = 0.0
    for width, share in steps:
        total += share * min(amount, width)
        amount -= min(amount, width)
    return total
