"""Devices of a collective, parsed from the text of its HLO instruction. Knows nothing of meshes."""

from __future__ import annotations

import re

import numpy as np

from lemur_ray.train.aot.hlo_text import Instruction


def group_of(rest: str) -> tuple[int, ...]:
    """Device numbers of the first replica group of a collective, or of the first pair of a permute; () if it spans all
    devices. rest: the attributes of its instruction (``Instruction.rest``)."""
    if listed := re.search(r"(?:replica_groups|source_target_pairs)=\{\{([\d,]+)\}", rest):
        return tuple(int(n) for n in listed[1].split(","))
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest):
        numbers = _numbered(iota[3], iota[4]).reshape(int(iota[1]), int(iota[2]))
        return tuple(int(n) for n in numbers[0])
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))?[^{]*"
                          r"\{([^}]*)\}", rest):  # fmt: skip
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", named[1])}
        total = int(np.prod(list(sizes.values())))
        numbers = _numbered(named[2] or str(total), named[3]).reshape(list(sizes.values()))
        among = set(re.findall(r"'([^']+)'", named[4]))
        return tuple(int(n) for n in numbers[tuple(slice(None) if name in among else 0 for name in sizes)].ravel())
    return ()


def between_slices(send: Instruction) -> tuple[str, tuple[int, ...]] | None:
    """Kind and first group of a collective between TPU slices, which the hosts execute; None for any other send.
    Its target names the slices and the devices of each: ``{1,2}x{0:7}``. Devices are numbered slice by slice."""
    kind = re.search(r'_xla_megascale_transfer_type="(\w+)"', send.rest)
    target = re.search(r'_xla_megascale_target="\{([\d,:]+)\}x\{([\d,:]+)\}"', send.rest)
    if kind is None or target is None:
        return None
    slices, devices = (sum(_span(part) for part in numbers.split(",")) for numbers in target.groups())
    return kind[1].lower().replace("_", "-"), tuple(slice_ * devices for slice_ in range(slices))


def _span(text: str) -> int:
    """Length of a range ``3`` or ``0:7``."""
    first, _, last = text.partition(":")
    return int(last or first) - int(first) + 1


def _numbered(dims: str, permutation: str | None) -> np.ndarray:
    """0, 1, .. in an array of these dimensions, transposed: HLO's notation for a device order."""
    shape = [int(n) for n in dims.split(",")]
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    return numbers.transpose([int(n) for n in permutation.split(",")]) if permutation else numbers
