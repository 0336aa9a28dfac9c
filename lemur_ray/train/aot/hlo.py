"""What a compiled program does: floating point operations and bytes of collectives, the trips of its loops counted.

Reads the optimised HLO text of an XLA executable, because XLA's own cost analysis counts the body of a loop once. A
product is a ``dot`` or ``convolution``; kernels are opaque to XLA, so the caller says what one call of each costs.
Knows nothing of models and meshes.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable

import numpy as np

DTYPE_BYTES = {
    "pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8,
    "u64": 8, "f64": 8,
}  # fmt: skip
COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "collective-permute", "all-to-all")

Shape = tuple[str, tuple[int, ...]]
"""Element type and dimensions."""


@dataclasses.dataclass(frozen=True)
class Collective:
    """Every execution of one kind of collective over groups of one shape, on one device."""

    kind: str
    """One of COLLECTIVES; a sum of which each device keeps its part is a reduce-scatter."""
    group: tuple[int, ...]
    """Numbers of the devices of the first group; of a permute, of the first pair."""
    dtype: str
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


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    shapes: tuple[Shape, ...]
    opcode: str
    inside: str
    """Text between its parentheses."""
    rest: str
    """Text behind them."""

    @property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.\-]+)", self.inside)


_SHAPE = re.compile(r"\b(pred|bf16|f16|f32|f64|[su](?:8|16|32|64))\[([\d,]*)\]")
_HEAD = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = ")
_CALLS = re.compile(r"(?:calls|body|true_computation|false_computation|branch_computations)=(\{[^}]*\}|%?[\w.\-]+)")
_CALLS_OF_CALL = re.compile(r"to_apply=(%?[\w.\-]+)")


def _shapes(text: str) -> tuple[Shape, ...]:
    return tuple((kind, tuple(int(n) for n in dims.split(",") if n)) for kind, dims in _SHAPE.findall(text))


def _elements(shape: Shape) -> int:
    total = 1
    for size in shape[1]:
        total *= size
    return total


def _size(shapes: tuple[Shape, ...]) -> int:
    return sum(_elements(shape) * DTYPE_BYTES[shape[0]] for shape in shapes)


def _closing(text: str, start: int) -> int:
    """Index of the parenthesis that closes the one at ``start``."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    raise ValueError(f"unbalanced parentheses: {text[:80]}")


def _instruction(line: str) -> _Instruction | None:
    head = _HEAD.match(line)
    if head is None:
        return None
    text = re.sub(r"\w+\[[\d,]*\]\{[^{}]*S\(5\)[^{}]*\}", "u8[0]", line[head.end() :])  # in the host's memory
    text = re.sub(r"(?<=\])\{[^{}]*\}", "", text)  # layouts hold parentheses of their own
    end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    opens = text.index("(", end)
    closes = _closing(text, opens)
    inside = text[opens + 1 : closes]
    return _Instruction(head[2], _shapes(text[:end]), text[end:opens].strip(), inside, text[closes + 1 :])


def _parse(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    """Computation -> instructions, and the name of the entry."""
    computations: dict[str, list[_Instruction]] = {}
    entry, current = "", ""
    for line in text.splitlines():
        if line.rstrip().endswith("{") and ") -> " in line:
            current = line.removeprefix("ENTRY ").split(" ", 1)[0].lstrip("%")
            computations[current] = []
            entry = current if line.startswith("ENTRY") else entry
        elif current and (found := _instruction(line)) is not None:
            computations[current].append(found)
    if not entry:
        raise ValueError("this is no HLO text: it has no ENTRY computation")
    return computations, entry


def _trips(loop: _Instruction, computations: dict[str, list[_Instruction]]) -> int:
    """Iterations of a counted loop: what the compiler says, else the constant that its counter, from zero, stays below.

    Raises ValueError for any other loop.
    """
    if said := re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.rest):
        return int(said[1])
    named = re.search(r"condition=%?([\w.\-]+)", loop.rest)
    condition = computations[named[1]] if named else []
    by_name = {i.name: i for i in condition}
    for compare in (i for i in condition if i.opcode == "compare" and "direction=LT" in i.rest):
        for operand in compare.operands:
            if by_name[operand].opcode == "constant":
                return int(by_name[operand].inside)
    raise ValueError(f"loop {loop.name}: its number of iterations is not a constant")


def _group(rest: str) -> tuple[int, ...]:
    """Numbers of the devices of the first replica group, or of the first pair of a permute; () where all take part."""
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


def _between_slices(send: _Instruction) -> tuple[str, tuple[int, ...]] | None:
    """Kind and first group of a collective between TPU slices, which libtpu hands to the hosts; None for another send.

    Its target names the slices and the devices of each: ``{1,2}x{0:7}``. Devices are numbered slice by slice.
    """
    kind = re.search(r'_xla_megascale_transfer_type="(\w+)"', send.rest)
    target = re.search(r'_xla_megascale_target="\{([\d,:]+)\}x\{([\d,:]+)\}"', send.rest)
    if kind is None or target is None:
        return None
    slices, devices = (sum(_span(part) for part in numbers.split(",")) for numbers in target.groups())
    return kind[1].lower().replace("_", "-"), tuple(slice_ * devices for slice_ in range(slices))


def _span(text: str) -> int:
    """How many numbers ``3`` or ``0:7`` stands for."""
    first, _, last = text.partition(":")
    return int(last or first) - int(first) + 1


def _numbered(dims: str, permutation: str | None) -> np.ndarray:
    """0, 1, .. in an array of these dimensions, transposed: how HLO writes an order of devices."""
    shape = [int(n) for n in dims.split(",")]
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    return numbers.transpose([int(n) for n in permutation.split(",")]) if permutation else numbers


def _product_flops(instruction: _Instruction, shape_of: dict[str, tuple[Shape, ...]]) -> float:
    """2 x elements of the result x length of the sum, of a dot or a convolution."""
    out = _elements(instruction.shapes[0])
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


def _sent_bytes(kind: str, instruction: _Instruction, group: int) -> float:
    """Bytes one device sends in a ring: an all-gather or a reduce-scatter once round, an all-reduce twice."""
    shapes = instruction.shapes
    if instruction.opcode.endswith("-start") and kind != "all-reduce":  # ((operands), (results), state)
        arrays = tuple(shape for shape in shapes if shape != ("u32", ()))
        shapes = arrays[len(arrays) // 2 :]
    whole, round_trip = _size(shapes), (group - 1) / group if group else 1.0
    if kind == "collective-permute":
        return float(whole)
    return whole * round_trip * (2.0 if kind == "all-reduce" else 1.0)


def read(hlo: str, kernel_flops: Callable[[str, tuple[Shape, ...]], float] = lambda name, shapes: 0.0) -> Program:
    """Totals of a program from ``compiled.as_text()``.

    kernel_flops: (name of a kernel without its number, shapes of its results) -> operations of one call.
    Raises ValueError for a text that is no HLO, or a loop whose number of iterations cannot be told.
    """
    computations, entry = _parse(hlo)
    flops, opaque, kernels = 0.0, 0.0, defaultdict[str, int](int)
    found: dict[tuple[str, tuple[int, ...], str], list[float]] = defaultdict(lambda: [0, 0.0])
    loops: list[Loop] = []

    def visit(name: str, times: int) -> None:
        nonlocal flops, opaque
        scattered = name.startswith("all-reduce-scatter")  # how the TPU compiler writes a reduce-scatter
        instructions = computations[name]
        shape_of = {i.name: i.shapes for i in instructions}
        for i in instructions:
            kind = i.opcode.removesuffix("-start")
            if i.opcode in ("dot", "convolution"):
                flops += times * _product_flops(i, shape_of)
            elif kind in COLLECTIVES:
                group = _group(i.rest)
                sent = _sent_bytes("reduce-scatter" if scattered else kind, i, len(group))
                if kind == "reduce-scatter":
                    sent *= len(group)  # its result is one part of what goes round
                entry_ = found["reduce-scatter" if scattered else kind, group, i.shapes[0][0]]
                entry_[0] += times
                entry_[1] += times * sent
            elif i.opcode == "send" and (between := _between_slices(i)) is not None:
                kind, group = between
                sums = found[kind, group, i.shapes[0][0]]
                sums[0] += times
                sums[1] += times * _sent_bytes(kind, dataclasses.replace(i, shapes=i.shapes[:1]), len(group))
            elif i.opcode == "custom-call" and "tpu_custom_call" in i.rest:
                kernel = re.sub(r"[.\d]+$", "", i.name)
                kernels[kernel] += times
                opaque += times * kernel_flops(kernel, i.shapes)
            trips = 1
            if i.opcode == "while":
                trips = _trips(i, computations)
                origin = re.search(r'op_name="([^"]*)"', i.rest)
                loops.append(Loop(trips, origin[1] if origin else "", i.shapes))
            names = _CALLS.findall(i.rest) + (_CALLS_OF_CALL.findall(i.rest) if i.opcode == "call" else [])
            for called in re.findall(r"[\w.\-]+", " ".join(names)):
                visit(called, times * trips)

    visit(entry, 1)
    collectives = tuple(
        Collective(kind, group, dtype, int(count), sent) for (kind, group, dtype), (count, sent) in found.items()
    )
    return Program(flops, opaque, dict(kernels), collectives, tuple(loops))
