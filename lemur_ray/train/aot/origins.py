"""Finds where an instruction of a compiled program comes from: pass of the step, file and line, operation.

XLA stores the operation name and a stack frame of every instruction that jax traced. Instructions made by the compiler
have neither and get the origin of a neighbour. Knows nothing of costs."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from lemur_ray.train.aot.hlo_text import Instruction

_PROJECT = f"{Path(__file__).parents[2]}/"
_PLUMBING = ("model/matmul.py", "model/layout.py", "serve/compute/devices.py")
"""Generic files, in which the caller's line is more informative."""
_PASSES = {"rematted_computation": "recomputed", "transpose(": "backward", "jvp(": "forward"}
_HOPS = 8
"""Maximum distance to a neighbour with an origin, and maximum neighbours per hop."""


@dataclasses.dataclass(frozen=True)
class Origins:
    """Source lines of the instructions of one program, from the table of stack frames in its text; without a table
    origins have no source lines."""

    lines: Mapping[int, str]
    """Frame -> "model/llama.py:98 Block.__call__", or "" outside of the project and in generic files."""
    parents: Mapping[int, int]
    """Frame -> frame of its caller."""

    @classmethod
    def of(cls, hlo: str) -> "Origins":
        """Parse the stack frame tables at the beginning of ``hlo``, ``compiled.as_text()``; empty without any."""
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

    def of_instruction(self, instruction: Instruction, by_name: Mapping[str, Instruction]) -> str:
        """Pass, source line and operation of an instruction, for example "backward, model/llama.py:98 Block.__call__,
        dot_general"; "" if unknown. by_name: all instructions of its computation."""
        traced = _traced(instruction, by_name)
        op = re.search(r'op_name="([^"]*)"', traced.rest)
        frame = re.search(r"stack_frame_id=(\d+)", traced.rest)
        name = op[1] if op else ""
        which = next((label for mark, label in _PASSES.items() if mark in name), "")
        parts = which, self._line(int(frame[1]) if frame else 0), name.rpartition("/")[2]
        return ", ".join(part for part in parts if part)

    def _line(self, frame: int) -> str:
        while frame in self.parents:
            if self.lines[frame]:
                return self.lines[frame]
            frame = self.parents[frame]
        return ""


def _traced(instruction: Instruction, by_name: Mapping[str, Instruction]) -> Instruction:
    """The instruction if jax traced it, else the nearest traced operand or user.
    For a gather users come first, as its operands are often parameters of the program."""

    def operands(one: Instruction) -> list[Instruction]:
        return [by_name[name] for name in one.operands if name in by_name]

    def users(one: Instruction) -> list[Instruction]:
        return [other for other in by_name.values() if one.name in other.operands]

    both = (users, operands) if instruction.opcode.startswith("all-gather") else (operands, users)
    for direction in both:
        near = [instruction]
        for _ in range(_HOPS):
            if named := [one for one in near if "op_name=" in one.rest]:
                return named[0]
            near = [next_ for one in near for next_ in direction(one)][:_HOPS]
    return instruction


def _table(hlo: str, name: str) -> dict[int, str]:
    """Rows ``3 text`` under the heading ``name``, by their number."""
    section = re.search(rf"^{name}\n((?:\d+ .*\n)+)", hlo, re.MULTILINE)
    rows = (line.split(" ", 1) for line in section[1].splitlines()) if section else ()
    return {int(number): text for number, text in rows}


def _fields(hlo: str, name: str) -> dict[int, dict[str, int]]:
    """Rows ``3 {field=number ..}`` under the heading ``name``, by their number."""
    return {
        number: {field: int(value) for field, value in re.findall(r"(\w+)=(\d+)", text)}
        for number, text in _table(hlo, name).items()
    }
