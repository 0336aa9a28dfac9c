"""Cost of a compiled program: floating point operations and bytes of collectives, multiplied by loop trip counts.

Read from optimised HLO, because XLA's own cost analysis counts the body of a loop once. A product is a ``dot``, a
``convolution`` or a call of cuBLAS. The caller gives the cost of a kernel; other library calls are listed."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from lemur_ray.train.aot.hlo_text import Instruction, Shape, elements, parse, size_bytes
from lemur_ray.train.aot.origins import Origins
from lemur_ray.train.aot.schedule import Schedule, call_target, called_by, is_kernel, is_product
from lemur_ray.train.aot.trips import trips_of

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "collective-permute", "all-to-all")
_CONTRACTED = re.compile(r'(?:lhs_contracting_dims=\{|"lhs_contracting_dimensions":\[)([\d,"]*)')


@dataclasses.dataclass(frozen=True)
class Collective:
    """All executions on one device of a collective of one kind, origin, group and shape."""

    kind: str
    """One of COLLECTIVES."""
    group: tuple[int, ...]
    """Device numbers of the first group; of the first pair for a permute."""
    dtype: str
    shape: tuple[int, ...]
    """Shape of the first array of the result."""
    origin: str
    """Source line (``origins``); "" if unknown."""
    count: int
    """Number of executions."""
    sent_bytes: float
    """Bytes that a device sends in all executions with a ring algorithm, a lower bound on a ring."""
    overlapped: bool = False
    """Whether the schedule computes products or kernels while it runs; else the device waits for it."""


@dataclasses.dataclass(frozen=True)
class Loop:
    """A ``while`` loop of the program: number of trips, operation that it comes from, arrays carried between trips."""

    trips: int
    origin: str
    """Name of the operation in jax; "" for a loop made by the compiler."""
    carried: tuple[Shape, ...]
    """Arrays carried from trip to trip."""


@dataclasses.dataclass(frozen=True)
class Program:
    """Costs of one run of a compiled program on one device: operations of products and kernels, collectives, loops."""

    products: dict[str, float]
    """Origin (``origins``) of matrix products, "" if unknown -> their floating point operations; of a conditional,
    every branch counts."""
    kernel_flops: float
    """Floating point operations of kernels, as the caller counts them."""
    kernels: dict[str, int]
    """Kernel -> number of calls; a kernel of cuDNN has the name of its call target."""
    uncounted: dict[str, int]
    """Call target of a library without known cost -> number of calls."""
    collectives: tuple[Collective, ...]
    loops: tuple[Loop, ...]

    @property
    def product_flops(self) -> float:
        """Floating point operations of all matrix products."""
        return sum(self.products.values())


def _product_flops(instruction: Instruction, shape_of: dict[str, tuple[Shape, ...]]) -> float:
    """FLOPs of a dot, convolution or call of cuBLAS: 2 x elements of the result x terms of each sum."""
    out = elements(instruction.shapes[0])
    if instruction.opcode in ("dot", "custom-call"):
        contracted = _CONTRACTED.search(instruction.rest)
        left = shape_of[instruction.operands[0]][0][1]
        length = 1
        for dim in re.findall(r"\d+", contracted[1]) if contracted else ():
            length *= left[int(dim)]
        return 2.0 * out * length
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.rest)
    if labels is None:
        return 0.0
    left, kernel = (shape_of[name][0][1] for name in instruction.operands[:2])
    out_shape = instruction.shapes[0][1]
    summed = float(kernel[labels[2].index("i")])
    for place, label in enumerate(sorted(set(labels[3]) - set("bf"))):  # spatial dimensions; a batch may be one
        sizes = [shape[names.index(label)] for shape, names in zip(
            (left, kernel, out_shape), labels.groups(), strict=True)]  # fmt: skip
        summed *= _window_pairs(instruction.rest, place, *sizes) / sizes[2]
    return 2.0 * out * summed


def _window_pairs(rest: str, place: int, left: int, kernel: int, out: int) -> int:
    """Number of (result, kernel) positions along one window dimension that read an element of the left operand."""
    window = re.search(r"window=\{([^}]*)\}", rest)
    given = dict(field.split("=") for field in window[1].split()) if window else {}

    def of(name: str, default: str) -> str:
        return given[name].split("x")[place] if name in given else default

    stride, spread, dilated = int(of("stride", "1")), int(of("lhs_dilate", "1")), int(of("rhs_dilate", "1"))
    at = np.arange(out)[:, None] * stride + np.arange(kernel)[None, :] * dilated - int(of("pad", "0_0").split("_")[0])
    return int(((at >= 0) & (at % spread == 0) & (at // spread < left)).sum())


def _sent_bytes(kind: str, instruction: Instruction, group: int) -> float:
    """Bytes a device sends in one execution as a ring: one round, two for all-reduce. group: number of devices."""
    shapes = instruction.shapes
    if instruction.opcode.endswith("-start") and kind != "all-reduce":  # ((operands), (results), state)
        arrays = tuple(shape for shape in shapes if shape != ("u32", ()))
        shapes = arrays[len(arrays) // 2 :]
    whole, round_trip = size_bytes(shapes), (group - 1) / group if group else 1.0
    if kind == "collective-permute":
        return float(whole)
    return whole * round_trip * (2.0 if kind == "all-reduce" else 1.0)


def _group_of(rest: str) -> tuple[int, ...]:
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


def _between_slices(send: Instruction) -> tuple[str, tuple[int, ...]] | None:
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


KernelFlops = Callable[[str, tuple[Shape, ...]], float]
"""Name of a kernel without its number, shapes of its results -> operations of one call."""


def read(hlo: str, kernel_flops: KernelFlops = lambda name, shapes: 0.0, dynamic_trips: int | None = None) -> Program:
    """Costs of a program, from its HLO text (``compiled.as_text()``). kernel_flops: cost of one call of a kernel; by
    default 0. dynamic_trips: trip count assumed for a loop without a constant one. Raises ValueError if such a loop
    occurs and it is None, and for text that is not HLO."""
    computations, entry = parse(hlo)
    opaque, kernels, uncounted = 0.0, defaultdict[str, int](int), defaultdict[str, int](int)
    products = defaultdict[str, float](float)
    origins, schedule = Origins.of(hlo), Schedule(computations)
    totals: dict[tuple[str, tuple[int, ...], Shape, str, bool], list[float]] = defaultdict(lambda: [0, 0.0])
    loops: list[Loop] = []

    def visit(name: str, times: int, caller: str = "") -> None:
        nonlocal opaque
        scattered = name.startswith("all-reduce-scatter")  # the TPU compiler's name of a reduce-scatter
        instructions = computations[name]
        by_name = {i.name: i for i in instructions}
        shape_of = {i.name: i.shapes for i in instructions}
        overlapped = schedule.overlapped(name)

        def add(kind: str, group: tuple[int, ...], i: Instruction, sent: float) -> None:
            origin = origins.of_instruction(i, by_name) or caller
            sums = totals[kind, group, i.shapes[0], origin, i.name in overlapped]
            sums[0] += times
            sums[1] += times * sent

        for i in instructions:
            kind = i.opcode.removesuffix("-start")
            if is_product(i):
                products[origins.of_instruction(i, by_name) or caller] += times * _product_flops(i, shape_of)
            elif kind in COLLECTIVES and schedule.is_continued(i, name):
                continue
            elif kind in COLLECTIVES:
                group = _group_of(i.rest)
                sent = _sent_bytes("reduce-scatter" if scattered else kind, i, len(group))
                if kind == "reduce-scatter":
                    sent *= len(group)  # the result is one part of the data sent round
                add("reduce-scatter" if scattered else kind, group, i, sent)
            elif i.opcode == "send" and (between := _between_slices(i)) is not None:
                kind, group = between
                add(kind, group, i, _sent_bytes(kind, dataclasses.replace(i, shapes=i.shapes[:1]), len(group)))
            elif is_kernel(i):
                kernel = re.sub(r"[.\d]+$", "", i.name) if (target := call_target(i)) == "tpu_custom_call" else target
                kernels[kernel] += times
                opaque += times * kernel_flops(kernel, i.shapes)
            elif (target := call_target(i)).startswith("__"):
                uncounted[target] += times
            trips = 1
            if i.opcode == "while":
                trips = trips_of(i, computations, by_name, dynamic_trips)
                origin = re.search(r'op_name="([^"]*)"', i.rest)
                loops.append(Loop(trips, origin[1] if origin else "", i.shapes))
            for called in called_by(i):
                visit(called, times * trips, origins.of_instruction(i, by_name) if i.opcode == "fusion" else "")

    visit(entry, 1)
    collectives = tuple(
        Collective(kind, group, *shape, origin, int(count), sent, overlapped)
        for (kind, group, shape, origin, overlapped), (count, sent) in totals.items()
    )
    return Program(dict(products), opaque, dict(kernels), dict(uncounted), collectives, tuple(loops))
