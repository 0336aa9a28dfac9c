"""Published figures of TPU chips, and bounds on the time of a step computed from them.

Figures per chip are those of Cloud TPU's pages on v4, v5e, v5p and v6e; link speeds, one way, those of the table in
"How to Scale Your Model" (chapter 2). Nothing here was measured. Knows nothing of XLA.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True)
class Chip:
    """One TPU chip."""

    peak_flops: float
    """Dense bfloat16 operations per second."""
    hbm_bytes: int
    link_bytes_per_s: float
    """Bandwidth of one link to one neighbour, one way."""


CHIPS = {
    "v4": Chip(275e12, 32 * GIB, 4.5e10),
    "v5e": Chip(197e12, 16 * GIB, 4.5e10),
    "v5p": Chip(459e12, 95 * GIB, 9e10),
    "v6e": Chip(918e12, 32 * GIB, 9e10),
}
SLICE_BYTES_PER_S = 6.25e9
"""Bandwidth between slices per chip: 200 Gbit/s of a host, shared by four chips."""
PRODUCTS_AT_PEAK = 0.8
"""Share of the peak that large matrix products are assumed to reach."""
MEASURED_MFU = {"v5p": 0.654, "v6e": 0.503}
"""Generation -> highest MFU in MaxText's list of optimised dense Llamas of 8 to 405 billion parameters (Llama 2 70B on
512 v5p, Llama 3.1 70B on 256 v6e)."""
BEST_MFU = max(MEASURED_MFU.values())
"""Used for generations missing from the list."""


def axis_bytes_per_s(chip: Chip, topology: tuple[int, ...], sizes: Mapping[str, int]) -> dict[str, float]:
    """Bytes per second that a chip can send along each mesh axis, over all torus axes that the mesh axis spans.

    A closed ring sends both ways, an open one has half the bandwidth: 3-D slices close where every axis is a multiple
    of 4, 2-D ones along an axis of 16. sizes: mesh axis -> devices. tp gets neighbours (those of a host first), fsdp
    the rest; links of a torus axis shared by two mesh axes count for both, as they are not busy at once.
    """
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


@dataclass(frozen=True)
class StepTime:
    """Estimated seconds of a step. Assumes products at PRODUCTS_AT_PEAK of the peak and rings at link speed; ignores
    memory-bound operations, stragglers and the input."""

    compute_s: float
    communication_s: float
    by_axis_s: dict[str, float]

    @property
    def at_least_s(self) -> float:
        """Lower bound: computation and communication overlap fully."""
        return max(self.compute_s, self.communication_s)

    @property
    def at_most_s(self) -> float:
        """Upper bound: no overlap."""
        return self.compute_s + self.communication_s

    @property
    def middle_s(self) -> float:
        """Mean of the bounds, used only to order candidates."""
        return (self.at_least_s + self.at_most_s) / 2


def step_time(
    chip: Chip, topology: tuple[int, ...], sizes: Mapping[str, int], flops: float, sent_bytes: Mapping[str, float]
) -> StepTime:
    """Estimate the time of a step. flops: executed per chip. sent_bytes: mesh axis -> bytes that a chip sends."""
    speed = axis_bytes_per_s(chip, topology, sizes)
    slowest = min(
        (speed[name] for name in speed if sizes.get(name, 1) > 1), default=1.0
    )  # for groups over several axes
    by_axis = {axis: sent / speed.get(axis, slowest) for axis, sent in sent_bytes.items()}
    return StepTime(flops / (chip.peak_flops * PRODUCTS_AT_PEAK), sum(by_axis.values()), by_axis)
