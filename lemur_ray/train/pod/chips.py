"""Published figures of TPU chips and GPUs, and bounds on the time of a step computed from them.

Figures per TPU chip are those of Cloud TPU's pages on v4, v5e, v5p and v6e; link speeds, one way, those of the table in
"How to Scale Your Model" (chapter 2). Figures of GPUs are those of NVIDIA's data sheets (dense operations) and of DGX
systems (one adapter of 400 Gbit/s for each GPU), their memory what the driver reports. Nothing was measured here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

GIB = 2**30


@dataclass(frozen=True)
class Chip:
    """Published figures of one TPU chip or GPU: operations per second, bytes of memory, and bandwidths."""

    peak_flops: float
    """Dense bfloat16 operations per second."""
    hbm_bytes: int
    link_bytes_per_s: float
    """Bandwidth, one way, of a TPU's link to one neighbour; of all NVLinks of a GPU together."""
    network_bytes_per_s: float = 0.0
    """Bandwidth between hosts, one way, of a GPU; 0: a TPU (see SLICE_BYTES_PER_S)."""
    kinds: tuple[str, ...] = ()
    """jax's names of the device (``device_kind``)."""
    hbm_bytes_per_s: float = 0.0
    """Bandwidth of its memory."""


CHIPS = {
    "v4": Chip(275e12, 32 * GIB, 4.5e10, kinds=("TPU v4",), hbm_bytes_per_s=1.228e12),
    "v5e": Chip(197e12, 16 * GIB, 4.5e10, kinds=("TPU v5 lite", "TPU v5e"), hbm_bytes_per_s=8.19e11),
    "v5p": Chip(459e12, 95 * GIB, 9e10, kinds=("TPU v5", "TPU v5p"), hbm_bytes_per_s=2.765e12),
    "v6e": Chip(918e12, 32 * GIB, 9e10, kinds=("TPU v6 lite", "TPU v6e"), hbm_bytes_per_s=1.64e12),
    "h100": Chip(989e12, 84_942_979_072, 4.5e11, 5e10, ("NVIDIA H100 80GB HBM3",), hbm_bytes_per_s=3.35232e12),
    "h200": Chip(
        989e12, 151_397_597_184, 4.5e11, 5e10, ("NVIDIA H200 141GB HBM3e", "NVIDIA H200"), hbm_bytes_per_s=4.8e12
    ),
    "b200": Chip(2250e12, 191_514_411_008, 9e11, 5e10, ("NVIDIA B200",), hbm_bytes_per_s=7.67232e12),
}
SLICE_BYTES_PER_S = 6.25e9
"""Bandwidth between slices per chip: 200 Gbit/s of a host, shared by four chips."""
PRODUCTS_AT_PEAK = 0.8
"""Share of the peak that large matrix products are assumed to reach."""
MEASURED_MFU = {"v5p": 0.654, "v6e": 0.503}
"""Generation -> highest MFU in MaxText's list of dense Llamas (Llama 2 70B on 512 v5p, Llama 3.1 70B on 256 v6e)."""
BEST_MFU = max(MEASURED_MFU.values())
"""Highest of these; used for generations that are not in the list."""


def axis_bytes_per_s(chip: Chip, topology: tuple[int, ...], sizes: Mapping[str, int]) -> dict[str, float]:
    """Bytes per second that a chip can send along each mesh axis, over all torus axes that the mesh axis spans.
    A closed ring sends both ways, an open one has half the bandwidth: 3-D slices close where every axis is a multiple
    of 4, 2-D ones along an axis of 16. sizes: mesh axis -> devices. tp gets neighbours (those of a host first), fsdp
    the rest; links of a torus axis shared by two mesh axes count for both, as they are not busy at once. Of GPUs the
    topology is ([hosts,] GPUs of a host), and an axis that leaves a host has the speed of the network."""
    if chip.network_bytes_per_s:
        inside = {name: _stride(sizes, name) * sizes[name] <= topology[-1] for name in sizes}
        return {name: chip.link_bytes_per_s if inside[name] else chip.network_bytes_per_s for name in sizes}
    closed = all(n % 4 == 0 for n in topology) if len(topology) == 3 else max(topology) == 16
    out = {"dcn": SLICE_BYTES_PER_S}
    left = list(topology)
    for name in ("tp", "fsdp"):
        wanted, used = sizes[name], 0
        while wanted > 1 and left:
            used += 1
            if wanted < left[0]:
                left[0] = left[0] // math.gcd(left[0], wanted)
                wanted = 1
            else:
                wanted = -(-wanted // left.pop(0))
        out[name] = (2 if closed else 1) * chip.link_bytes_per_s * max(1, used)
    return out


def _stride(sizes: Mapping[str, int], name: str) -> int:
    """Difference between the numbers of neighbouring devices along a mesh axis. sizes: mesh axes in order."""
    names = list(sizes)
    return math.prod(sizes[inner] for inner in names[names.index(name) + 1 :])


@dataclass(frozen=True)
class StepTime:
    """Estimated seconds of a step: of products, and of communication in all and by mesh axis. Assumes products at
    PRODUCTS_AT_PEAK of the peak and rings at link speed; ignores memory-bound operations, stragglers and the input."""

    compute_s: float
    communication_s: float
    by_axis_s: dict[str, float]
    waiting_s: float = 0.0
    """Part of ``communication_s`` during which the schedule computes nothing."""

    @property
    def at_least_s(self) -> float:
        """Lower bound in seconds: overlapped communication is hidden behind products as far as these last."""
        return max(self.compute_s, self.communication_s - self.waiting_s) + self.waiting_s

    @property
    def at_most_s(self) -> float:
        """Upper bound in seconds: no overlap."""
        return self.compute_s + self.communication_s

    @property
    def middle_s(self) -> float:
        """Mean of the bounds, used only to order candidates."""
        return (self.at_least_s + self.at_most_s) / 2


def step_time(
    chip: Chip,
    topology: tuple[int, ...],
    sizes: Mapping[str, int],
    flops: float,
    sent_bytes: Mapping[str, float],
    waiting_bytes: Mapping[str, float] = MappingProxyType({}),
) -> StepTime:
    """Estimate the time of a step. sizes: mesh axis -> devices. flops: operations executed per chip. sent_bytes: mesh
    axis -> bytes that a chip sends; waiting_bytes: those of them that no computation overlaps. topology: chips along
    each torus axis, or ([hosts,] GPUs of a host)."""
    speed = axis_bytes_per_s(chip, topology, sizes)
    # For groups over several axes.
    slowest = min((speed[name] for name in speed if sizes.get(name, 1) > 1), default=1.0)
    by_axis = {axis: sent / speed.get(axis, slowest) for axis, sent in sent_bytes.items()}
    waiting = sum(sent / speed.get(axis, slowest) for axis, sent in waiting_bytes.items())
    return StepTime(flops / (chip.peak_flops * PRODUCTS_AT_PEAK), sum(by_axis.values()), by_axis, waiting)
