"""Trip counts of loops in an HLO program, from the compiler's annotation or a counter's start, step and limit."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lemur_ray.train.aot.hlo_text import Instruction

Computations = Mapping[str, list[Instruction]]
_PASSES_ON = ("copy", "bitcast", "convert", "opt-barrier", "optimization-barrier", "reshape")


class _Linear(NamedTuple):
    """``slope`` x (element number ``of`` of the loop's state) + ``offset``."""

    slope: int
    of: int
    offset: int


def trips_of(
    loop: Instruction, computations: Computations, around: Mapping[str, Instruction], otherwise: int | None = None
) -> int:
    """Trip count of a ``while`` instruction. around: the instructions of the computation that contains it, by name.
    otherwise: returned if start, step or limit of the counter is not constant; None: raise ValueError then. Also raises
    ValueError for a loop that never ends."""
    if known := re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.rest):
        return int(known[1])
    named = {part: re.search(rf"{part}=%?([\w.\-]+)", loop.rest) for part in ("condition", "body")}
    condition, body = (computations[match[1]] if match else [] for match in named.values())
    for compare, by_name, given in _compares(condition, computations):
        direction = re.search(r"direction=(\w+)", compare.rest)
        left, right = (_linear(name, by_name, computations, given) for name in compare.operands)
        if left is None or right is None or direction is None or not left.slope or right.slope:
            continue
        start = _linear(loop.operands[0], around, computations, element=left.of)
        step = _linear(body[-1].name, _by_name(body), computations, element=left.of)
        if start is None or start.slope or step is None or (step.slope, step.of) != (1, left.of):
            continue
        return _count(start.offset + left.offset, step.offset, right.offset, direction[1], loop)
    if otherwise is not None:
        return otherwise
    raise ValueError(f"loop {loop.name}: start, step or limit of its counter is not a constant")


def _compares(condition: list[Instruction], computations: Computations) -> Iterator[tuple[Instruction, Any, Any]]:
    """Comparisons in a condition and in its fused computations, each with the two arguments for ``_linear``."""
    around = _by_name(condition)
    for i in condition:
        called = re.search(r"calls=%?([\w.\-]+)", i.rest) if i.opcode == "fusion" else None
        given = {number: _linear(operand, around, computations) for number, operand in enumerate(i.operands)}
        inside = computations[called[1]] if called else [i]
        for compare in (one for one in inside if one.opcode == "compare"):
            yield (compare, _by_name(inside), given) if called else (compare, around, None)


def _count(start: int, step: int, limit: int, direction: str, loop: Instruction) -> int:
    """Number of values start, start + step, .. for which the comparison with the limit holds."""
    distance, by = (limit - start, step) if direction in ("LT", "LE", "NE") else (start - limit, -step)
    if by <= 0 or direction not in ("LT", "LE", "GT", "GE", "NE") or (direction == "NE" and distance % by):
        raise ValueError(f"loop {loop.name} never ends: from {start} by {step} while {direction} {limit}")
    return max(0, (distance + by) // by if direction in ("LE", "GE") else -(-distance // by))


def _by_name(instructions: list[Instruction]) -> dict[str, Instruction]:
    return {i.name: i for i in instructions}


def _linear(
    name: str,
    by_name: Mapping[str, Instruction],
    computations: Computations,
    given: Mapping[int, _Linear | None] | None = None,
    *,
    element: int | None = None,
) -> _Linear | None:
    """Value of an integer instruction, or of one ``element`` of a tuple, as a linear function of the loop's state.
    given: values of the parameters of a fused computation, by number. None for anything that is not linear."""
    if (i := by_name.get(name)) is None:
        return None

    def of(operand: str, inner: int | None = None) -> _Linear | None:
        return _linear(operand, by_name, computations, given, element=inner)

    if i.opcode in _PASSES_ON:
        return of(i.operands[0], element)
    if i.opcode == "tuple" and element is not None:
        return of(i.operands[element])
    if i.opcode == "get-tuple-element" and (index := re.search(r"index=(\d+)", i.rest)):
        return of(i.operands[0], int(index[1]))
    if i.opcode == "parameter":
        if given is not None:
            return given.get(int(i.inside))
        return None if element is None else _Linear(1, element, 0)
    if i.opcode == "constant" and re.fullmatch(r"-?\d+", i.inside):
        return _Linear(0, 0, int(i.inside))
    if i.opcode in ("add", "subtract"):
        left, right = (of(operand) for operand in i.operands)
        sign = 1 if i.opcode == "add" else -1
        if left is None or right is None or (left.slope and right.slope):
            return None
        counter = left.of if left.slope else right.of
        return _Linear(left.slope + sign * right.slope, counter, left.offset + sign * right.offset)
    called = re.search(r"calls=%?([\w.\-]+)", i.rest)
    if i.opcode == "fusion" and called and (inside := computations[called[1]]):
        values = {number: of(operand) for number, operand in enumerate(i.operands)}
        return _linear(inside[-1].name, _by_name(inside), computations, values, element=element)
    return None
