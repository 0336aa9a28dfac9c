"""Where an instruction of a compiled program was written: pass of the step, file and line, operation.

XLA keeps for every instruction that jax traced the name of its operation and a number in a table of stack frames; what
the compiler makes itself has neither, and is named after what it takes. Knows nothing of costs.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from lemur_ray.train.aot.hlo_text import Instruction

_PROJECT = f"{Path(__file__).parents[2]}/"
_PLUMBING = ("model/matmul.py", "model/layout.py")
"""Called from everywhere: who called them says more."""
_PASSES = {"rematted_computation": "recomputed", "transpose(": "backward", "jvp(": "forward"}
_HOPS = 8


@dataclasses.dataclass(frozen=True)
class Origins:
    """The table of stack frames of one program. An empty one names operations only."""

    lines: Mapping[int, str]
    """Frame -> "model/llama.py:98 Block.__call__", or "" where it lies outside of the project or in its plumbing."""
    parents: Mapping[int, int]
    """Frame -> its caller's."""

    @classmethod
    def of(cls, hlo: str) -> Origins:
        """The tables at the beginning of ``compiled.as_text()``."""
        files, functions = _table(hlo, "FileNames"), _table(hlo, "FunctionNames")
        places, frames = _fields(hlo, "FileLocations"), _fields(hlo, "StackFrames")
        named: dict[int, str] = {}
        for number, frame in frames.items():
            place = places.get(frame["file_location_id"], {})
            path = files.get(place.get("file_name_id", 0), "").strip('"')
            inside = path.removeprefix(_PROJECT) if path.startswith(_PROJECT) else ""
            function = functions.get(place.get("function_name_id", 0), "").strip('"').replace("<locals>.", "")
            plain = inside and inside not in _PLUMBING
            named[number] = f"{inside}:{place.get('line', 0)} {function}" if plain else ""
        return cls(named, {number: frame.get("parent_frame_id", 1) - 1 for number, frame in frames.items()})

    def of_instruction(self, instruction: Instruction, beside: Mapping[str, Instruction]) -> str:
        """ "backward, model/llama.py:98 Block.__call__, dot_general"; parts that are unknown are left out.

        beside: the instructions of its computation by name.
        """
        found = _traced(instruction, beside)
        op = re.search(r'op_name="([^"]*)"', found.rest)
        frame = re.search(r"stack_frame_id=(\d+)", found.rest)
        name = op[1] if op else ""
        which = next((said for sign, said in _PASSES.items() if sign in name), "")
        parts = which, self._line(int(frame[1]) if frame else 0), name.rpartition("/")[2]
        return ", ".join(part for part in parts if part)

    def _line(self, frame: int) -> str:
        while frame in self.parents:
            if self.lines[frame]:
                return self.lines[frame]
            frame = self.parents[frame]
        return ""


def _traced(instruction: Instruction, beside: Mapping[str, Instruction]) -> Instruction:
    """The instruction, or where the compiler made it the nearest that jax traced: what it takes or who takes it.

    Of a gather the latter come first, as its parts are often parameters of the program.
    """

    def takes(one: Instruction) -> list[Instruction]:
        return [beside[name] for name in one.operands if name in beside]

    def taken_by(one: Instruction) -> list[Instruction]:
        return [other for other in beside.values() if one.name in other.operands]

    both = (taken_by, takes) if instruction.opcode.startswith("all-gather") else (takes, taken_by)
    for direction in both:
        near = [instruction]
        for _ in range(_HOPS):
            if named := [one for one in near if "op_name=" in one.rest]:
                return named[0]
            near = [next_ for one in near for next_ in direction(one)][:_HOPS]
    return instruction


def _table(hlo: str, name: str) -> dict[int, str]:
    """Rows ``3 text`` under a heading."""
    found = re.search(rf"^{name}\n((?:\d+ .*\n)+)", hlo, re.MULTILINE)
    rows = (line.split(" ", 1) for line in found[1].splitlines()) if found else ()
    return {int(number): text for number, text in rows}


def _fields(hlo: str, name: str) -> dict[int, dict[str, int]]:
    """Rows ``3 {field=number ..}`` under a heading."""
    return {
        number: {field: int(value) for field, value in re.findall(r"(\w+)=(\d+)", text)}
        for number, text in _table(hlo, name).items()
    }
