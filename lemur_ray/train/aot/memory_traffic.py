"""Bytes that a compiled program reads from and writes to a device's memory, multiplied by loop trip counts.

Read from optimised HLO, because XLA's own cost analysis counts the body of a loop once. Arrays in a TPU's fast memory
cost nothing. Of an operand that is only sliced, the slice is read; of one that is updated in place, the update is
written. What a TPU kernel reads is not counted. Knows nothing of what the arrays are."""

import re

from lemur_ray.train.aot.hlo_text import Instruction, parse, size_bytes
from lemur_ray.train.aot.schedule import call_target, called_by
from lemur_ray.train.aot.trips import trips_of

_FAST = re.compile(r"\b\w+\[[\d,]*\](?=\{[^{}]*S\([1-46-9]\)[^{}]*\})")
"""An array whose layout is in fast memory; S(5) is the host's."""
_FREE = {
    "parameter", "tuple", "get-tuple-element", "bitcast", "constant", "after-all", "iota", "partition-id", "replica-id",
    "copy-done", "slice-done", "async-done", "async-update", "opt-barrier", "add-dependency",
}  # fmt: skip
_SLICES = ("dynamic-slice", "slice", "gather")
_RESHAPES = ("bitcast", "copy", "convert", "reshape", "transpose")
_ALIASED = "output_to_operand_aliasing={{}:"
"""Attribute of a fusion within a fusion whose result is its operand in another layout."""
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
"""Instruction that updates its first operand in place -> index of the operand that it writes."""


def memory_bytes(hlo: str) -> float:
    """Bytes of one execution on one device, from HLO text; of a conditional those of the branch with fewest, of a loop
    without a constant trip count one trip. Raises ValueError for text that is not HLO."""
    traffic = _Traffic(hlo)
    return traffic.of(traffic.entry)


class _Traffic:
    def __init__(self, hlo: str):
        self._computations, self.entry = parse(hlo)
        self._named = {name: {i.name: i for i in own} for name, own in self._computations.items()}
        in_memory = parse(_FAST.sub("u8[0]", hlo))[0]
        self._shapes = {name: {i.name: i.shapes for i in own} for name, own in in_memory.items()}

    def of(self, name: str) -> float:
        """Bytes of one execution of a computation."""
        return sum(self._bytes(name, i) for i in self._computations[name] if i.opcode not in _FREE)

    def _bytes(self, name: str, i: Instruction) -> float:
        if i.opcode == "while":
            return trips_of(i, self._computations, self._named[name], 1) * self.of(called_by(i)[0])
        if i.opcode == "call":
            return self.of(called_by(i)[0])
        if i.opcode == "conditional":
            return min(map(self.of, called_by(i)), default=0)
        shapes, written = self._shapes[name], size_bytes(self._shapes[name][i.name])
        if i.opcode == "copy-start":  # (target, source, state); what the next execution needs first costs it nothing
            return 0 if "cross_program_prefetch" in i.rest else size_bytes(shapes[i.name][:2])
        if i.opcode == "slice-start":  # ((source), target, state)
            return size_bytes(i.shapes[1:2]) + size_bytes(shapes[i.name][1:2])
        if call_target(i) == "tpu_custom_call":
            return written
        operands = [(n, operand) for n, operand in enumerate(i.operands) if size_bytes(shapes.get(operand, ()))]
        return sum(self._read(name, i, n) for n, _ in operands) + self._written(name, i)

    def _read(self, name: str, i: Instruction, n: int) -> float:
        """Bytes that an instruction reads of its operand ``n``."""
        whole = size_bytes(self._named[name][i.operands[n]].shapes)
        if n == 0 and i.opcode in _SLICES:
            return min(size_bytes(i.shapes), whole)
        if n == 0 and i.opcode in _UPDATES:
            return 0
        if i.opcode != "fusion":
            return whole
        (called,) = called_by(i)
        parameter = next(j.name for j in self._computations[called] if j.opcode == "parameter" and j.inside == str(n))
        return self._used(called, parameter, whole)

    def _used(self, name: str, array: str, whole: int) -> float:
        """Bytes that a fused computation reads of an array of ``whole`` bytes, which it may reshape first."""
        most, (*_, root) = 0.0, self._computations[name]
        for i in self._computations[name]:
            if array in i.operands:
                size = size_bytes(i.shapes)
                passed_on = (i.opcode in _RESHAPES or _ALIASED in i.rest) and i is not root and size
                read = self._read(name, i, i.operands.index(array))
                most = max(most, self._used(name, i.name, size) * whole / size if passed_on else read)
        return min(most, whole)

    def _written(self, name: str, i: Instruction) -> float:
        """Bytes that an instruction writes, inside a fusion also as its result."""
        written = size_bytes(self._shapes[name][i.name])
        if not written:
            return 0
        if i.opcode in _UPDATES:
            return size_bytes(self._named[name][i.operands[_UPDATES[i.opcode]]].shapes)
        if i.opcode == "bitcast":
            return self._written(name, self._named[name][i.operands[0]])
        if i.opcode != "fusion":
            return written
        (inside,) = called_by(i)
        *_, root = self._computations[inside]
        parts = root.operands if root.opcode == "tuple" else [root.name]
        return min(written, sum(self._written(inside, self._named[inside][part]) for part in parts))
