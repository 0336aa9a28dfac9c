"""What a compiled program does: floating point operations and bytes of collectives, the trips of its loops counted.

Read from optimised HLO, because XLA's own cost analysis counts the body of a loop once. A product is a ``dot`` or
``convolution``; kernels are opaque to XLA, so the caller says what one call of each costs. Knows nothing of models and
meshes.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from lemur_ray.train.aot.device_groups import between_slices, group_of
from lemur_ray.train.aot.hlo_text import Instruction, Shape, elements, parse, size_bytes, trips_of
from lemur_ray.train.aot.origins import Origins

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "collective-permute", "all-to-all")
_CALLS = re.compile(r"(?:calls|body|true_computation|false_computation|branch_computations)=(\{[^}]*\}|%?[\w.\-]+)")
_CALLS_OF_CALL = re.compile(r"to_apply=(%?[\w.\-]+)")


@dataclasses.dataclass(frozen=True)
class Collective:
    """Every execution of one kind of collective from one place over groups of one shape, on one device."""

    kind: str
    """One of COLLECTIVES; a sum of which each device keeps its part is a reduce-scatter."""
    group: tuple[int, ...]
    """Numbers of the devices of the first group; of a permute, of the first pair."""
    dtype: str
    shape: tuple[int, ...]
    """Of the first array of its result."""
    origin: str
    """Where it was written (``origins``); "" where that is not known."""
    count: int
    """Executions."""
    sent_bytes: float
    """Bytes that a device sends in all of them, by a ring: the lower bound of any algorithm on one."""


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop of the program."""

    trips: int
    origin: str
    """Where it was traced, as jax names it; "" where the compiler made it."""
    carried: tuple[Shape, ...]
    """Arrays that live as long as the loop runs."""


@dataclasses.dataclass(frozen=True)
class Program:
    """Totals of one execution on one device."""

    product_flops: float
    """Floating point operations of matrix products; of a conditional, every branch counts."""
    kernel_flops: float
    """Floating point operations of kernels, as the caller counts them."""
    kernels: dict[str, int]
    """Kernel -> calls."""
    collectives: tuple[Collective, ...]
    loops: tuple[Loop, ...]


def _product_flops(instruction: Instruction, shape_of: dict[str, tuple[Shape, ...]]) -> float:
    """2 x elements of the result x length of the sum, of a dot or a convolution."""
    out = elements(instruction.shapes[0])
    if instruction.opcode == "dot":
        contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.rest)
        left = shape_of[instruction.operands[0]][0][1]
        length = 1
        for dim in contracted[1].split(",") if contracted else ():
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
    """Pairs of a result and a kernel position along one dimension of a window that meet an element of the left side."""
    window = re.search(r"window=\{([^}]*)\}", rest)
    given = dict(field.split("=") for field in window[1].split()) if window else {}

    def of(name: str, default: str) -> str:
        return given[name].split("x")[place] if name in given else default

    stride, spread, dilated = int(of("stride", "1")), int(of("lhs_dilate", "1")), int(of("rhs_dilate", "1"))
    at = np.arange(out)[:, None] * stride + np.arange(kernel)[None, :] * dilated - int(of("pad", "0_0").split("_")[0])
    return int(((at >= 0) & (at % spread == 0) & (at // spread < left)).sum())


def _sent_bytes(kind: str, instruction: Instruction, group: int) -> float:
    """Bytes one device sends in a ring: an all-gather or a reduce-scatter once round, an all-reduce twice."""
    shapes = instruction.shapes
    if instruction.opcode.endswith("-start") and kind != "all-reduce":  # ((operands), (results), state)
        arrays = tuple(shape for shape in shapes if shape != ("u32", ()))
        shapes = arrays[len(arrays) // 2 :]
    whole, round_trip = size_bytes(shapes), (group - 1) / group if group else 1.0
    if kind == "collective-permute":
        return float(whole)
    return whole * round_trip * (2.0 if kind == "all-reduce" else 1.0)


def read(hlo: str, kernel_flops: Callable[[str, tuple[Shape, ...]], float] = lambda name, shapes: 0.0) -> Program:
    """Totals of a program from ``compiled.as_text()``.

    kernel_flops: (name of a kernel without its number, shapes of its results) -> operations of one call.
    Raises ValueError for a text that is no HLO, or a loop whose number of iterations cannot be told.
    """
    computations, entry = parse(hlo)
    flops, opaque, kernels = 0.0, 0.0, defaultdict[str, int](int)
    origins = Origins.of(hlo)
    found: dict[tuple[str, tuple[int, ...], Shape, str], list[float]] = defaultdict(lambda: [0, 0.0])
    loops: list[Loop] = []

    def visit(name: str, times: int, caller: str = "") -> None:
        nonlocal flops, opaque
        scattered = name.startswith("all-reduce-scatter")  # how the TPU compiler writes a reduce-scatter
        instructions = computations[name]
        beside = {i.name: i for i in instructions}
        shape_of = {i.name: i.shapes for i in instructions}

        def add(kind: str, group: tuple[int, ...], i: Instruction, sent: float) -> None:
            sums = found[kind, group, i.shapes[0], origins.of_instruction(i, beside) or caller]
            sums[0] += times
            sums[1] += times * sent

        for i in instructions:
            kind = i.opcode.removesuffix("-start")
            if i.opcode in ("dot", "convolution"):
                flops += times * _product_flops(i, shape_of)
            elif kind in COLLECTIVES:
                group = group_of(i.rest)
                sent = _sent_bytes("reduce-scatter" if scattered else kind, i, len(group))
                if kind == "reduce-scatter":
                    sent *= len(group)  # its result is one part of what goes round
                add("reduce-scatter" if scattered else kind, group, i, sent)
            elif i.opcode == "send" and (between := between_slices(i)) is not None:
                kind, group = between
                add(kind, group, i, _sent_bytes(kind, dataclasses.replace(i, shapes=i.shapes[:1]), len(group)))
            elif i.opcode == "custom-call" and "tpu_custom_call" in i.rest:
                kernel = re.sub(r"[.\d]+$", "", i.name)
                kernels[kernel] += times
                opaque += times * kernel_flops(kernel, i.shapes)
            trips = 1
            if i.opcode == "while":
                trips = trips_of(i, computations)
                origin = re.search(r'op_name="([^"]*)"', i.rest)
                loops.append(Loop(trips, origin[1] if origin else "", i.shapes))
            names = _CALLS.findall(i.rest) + (_CALLS_OF_CALL.findall(i.rest) if i.opcode == "call" else [])
            for called in re.findall(r"[\w.\-]+", " ".join(names)):
                visit(called, times * trips, origins.of_instruction(i, beside) if i.opcode == "fusion" else "")

    visit(entry, 1)
    collectives = tuple(
        Collective(kind, group, *shape, origin, int(count), sent)
        for (kind, group, shape, origin), (count, sent) in found.items()
    )
    return Program(flops, opaque, dict(kernels), collectives, tuple(loops))
