"""Tells which collectives of a scheduled HLO program overlap with computation. Knows nothing of costs."""

import re
from collections.abc import Mapping

from lemur_ray.train.aot.hlo_text import Instruction

_CALLS = re.compile(r"(?:calls|body|true_computation|false_computation|branch_computations)=(\{[^}]*\}|%?[\w.\-]+)")
_CALLS_OF_CALL = re.compile(r"to_apply=(%?[\w.\-]+)")
_FUSION = "async_collective_fusion"
"""Beginning of the TPU compiler's name of a product that runs beside a part of a collective."""
_CUBLAS = ("__cublas$gemm", "__cublas$lt$matmul")
"""Beginnings of call targets that are one product of two matrices."""


def call_target(instruction: Instruction) -> str:
    """Target of a custom call; "" for any other instruction."""
    if instruction.opcode != "custom-call":
        return ""
    target = re.search(r'custom_call_target="([^"]*)"', instruction.rest)
    return target[1] if target else ""


def is_product(instruction: Instruction) -> bool:
    """Whether an instruction is a product of two matrices."""
    return instruction.opcode in ("dot", "convolution") or call_target(instruction).startswith(_CUBLAS)


def is_kernel(instruction: Instruction) -> bool:
    """Whether an instruction calls a kernel of Pallas for TPU or attention of cuDNN."""
    return (target := call_target(instruction)) == "tpu_custom_call" or target.startswith("__cudnn$fmha")


def called_by(instruction: Instruction) -> list[str]:
    """Names of the computations that an instruction executes; [] for none."""
    names = _CALLS.findall(instruction.rest)
    names += _CALLS_OF_CALL.findall(instruction.rest) if instruction.opcode == "call" else []
    return re.findall(r"[\w.\-]+", " ".join(names))


def _channel(instruction: Instruction) -> str:
    """Number of the channel of a collective that is written into a chain of fusions; "" for any other instruction."""
    channel = re.search(r'channel_id=(\d+).*chain_id="', instruction.rest)
    return channel[1] if channel else ""


class Schedule:
    """The order of instructions in each computation of a program, as HLO text lists them. computations: instructions by
    name of their computation, as from ``hlo_text.parse``."""

    def __init__(self, computations: Mapping[str, list[Instruction]]) -> None:
        self._computations = computations
        self._computing: dict[str, bool] = {}
        fused = (i for name, all_ in computations.items() if name.startswith(_FUSION) for i in all_)
        self._in_fusions = {channel for i in fused if (channel := _channel(i))}

    def overlapped(self, name: str) -> set[str]:
        """Names of the collectives in the computation ``name`` that overlap with products or kernels.
        These are collectives with a product or kernel between start and end, and those fused with a product, also in
        a later part of their chain."""
        instructions = self._computations[name]
        if any(is_product(i) for i in instructions) and name.startswith(("fused", _FUSION)):
            return {i.name for i in instructions}
        chained = {i.name for i in instructions if _channel(i) in self._in_fusions}
        ends = {
            operand: at for at, i in enumerate(instructions) if i.opcode.endswith("-done") for operand in i.operands
        }
        busy = [at for at, i in enumerate(instructions) if self._computes(i)]
        return chained | {
            i.name for at, i in enumerate(instructions) if any(at < one < ends.get(i.name, at) for one in busy)
        }

    def is_continued(self, instruction: Instruction, name: str) -> bool:
        """Whether a collective of the computation ``name`` continues one that another computation started: the TPU
        compiler writes a collective into every fusion that runs at the same time, from its start to its end."""
        starts = any(call_target(i) == "AsyncCollectiveStart" for i in self._computations[name])
        return bool(_channel(instruction)) and not starts

    def _computes(self, instruction: Instruction) -> bool:
        """Whether an instruction is or executes a product or a kernel."""
        if is_product(instruction) or is_kernel(instruction):
            return True
        return any(self._computation_computes(name) for name in called_by(instruction))

    def _computation_computes(self, name: str) -> bool:
        if name not in self._computing:
            self._computing[name] = any(map(self._computes, self._computations[name]))
        return self._computing[name]
