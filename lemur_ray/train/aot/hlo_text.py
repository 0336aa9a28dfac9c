"""Parser of optimised HLO text: instructions of an XLA executable by computation. Knows nothing of costs."""

import dataclasses
import math
import re

DTYPE_BYTES = {
    "pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8,
    "u64": 8, "f64": 8,
}  # fmt: skip
Shape = tuple[str, tuple[int, ...]]
"""Element type and dimensions."""
_SHAPE = re.compile(r"\b(pred|bf16|f16|f32|f64|[su](?:8|16|32|64))\[([\d,]*)\]")
_HEAD = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = ")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One HLO instruction, ``name = shapes opcode(inside)rest``, a line of a computation."""

    name: str
    shapes: tuple[Shape, ...]
    opcode: str
    inside: str
    """Text between the parentheses of the operands."""
    rest: str
    """Text after the operands: attributes and metadata."""

    @property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.\-]+)", self.inside)


def _shapes(text: str) -> tuple[Shape, ...]:
    return tuple((kind, tuple(int(n) for n in dims.split(",") if n)) for kind, dims in _SHAPE.findall(text))


def elements(shape: Shape) -> int:
    """Number of elements of an array."""
    return math.prod(shape[1])


def size_bytes(shapes: tuple[Shape, ...]) -> int:
    """Bytes of all arrays together; 0 for none."""
    return sum(elements(shape) * DTYPE_BYTES[shape[0]] for shape in shapes)


def _closing(text: str, start: int) -> int:
    """Index of the parenthesis that closes the one at ``start``."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    raise ValueError(f"unbalanced parentheses: {text[:80]}")


def _instruction(line: str) -> Instruction | None:
    head = _HEAD.match(line)
    if head is None:
        return None
    text = re.sub(r"\w+\[[\d,]*\]\{[^{}]*S\(5\)[^{}]*\}", "u8[0]", line[head.end() :])  # in the host's memory
    text = re.sub(r"(?<=\])\{[^{}]*\}", "", text)  # layouts hold parentheses of their own
    end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ")
    opens = text.index("(", end)
    closes = _closing(text, opens)
    inside = text[opens + 1 : closes]
    return Instruction(head[2], _shapes(text[:end]), text[end:opens].strip(), inside, text[closes + 1 :])


def parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """Parse HLO: (instructions by name of their computation, name of the entry computation). Raises ValueError."""
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", ""
    for line in text.splitlines():
        if line.rstrip().endswith("{") and ") -> " in line:
            current = line.removeprefix("ENTRY ").split(" ", 1)[0].lstrip("%")
            computations[current] = []
            entry = current if line.startswith("ENTRY") else entry
        elif current and (instruction := _instruction(line)) is not None:
            computations[current].append(instruction)
    if not entry:
        raise ValueError("this is no HLO text: it has no ENTRY computation")
    return computations, entry
