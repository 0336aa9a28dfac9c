"""The plan of a pod: memory per chip, operations and communication of one training step, and estimated times.

Bytes and operations come from a compiled program, times are estimates (``chips``). Knows nothing of compilation."""

import dataclasses
from typing import Any

import numpy as np

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.config.mesh import axis_sizes, check_heads
from lemur_ray.train.aot.hlo import Program
from lemur_ray.train.pod.chips import BEST_MFU, CHIPS, GIB, MEASURED_MFU, StepTime
from lemur_ray.train.pod.gpu_hosts import Devices

LIMIT = 28 / 32
"""Share of a chip's memory that a plan may use; the rest is for the runtime and a margin."""


class StepDoesNotFit(Exception):
    """Raised when the compiler cannot fit a step into a chip's memory; the message is XLA's first line."""


class BlockDoesNotFit(StepDoesNotFit):
    """Raised when blocks of attention exceed a core's scoped vector memory, which no mesh and no remat policy changes;
    the message names the next smaller block."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one chip by kind of content: ``parameters``, ``gradients`` and ``optimizer`` state, input ``batch``,
    stored ``activations``, machine ``code``. Kinds share memory over time: ``temporaries`` is the rest of the total."""

    parameters: int
    optimizer: int
    batch: int
    gradients: int
    activations: int
    temporaries: int
    code: int
    host: int
    """Bytes in host memory, not part of the total."""

    @property
    def total(self) -> int:
        return sum(dataclasses.astuple(self)) - self.host


@dataclasses.dataclass(frozen=True)
class PodPlan:
    """Resources and estimated time of one training step of ``recipe`` on a TPU slice or on GPUs (``where``).
    ``compile_s``: seconds that compiling took."""

    recipe: Recipe
    where: Devices
    memory: Memory
    program: Program
    compile_s: float
    model_flops: float
    """FLOPs per step of the whole slice: 6N + causal attention."""
    executed_flops: float
    """FLOPs per step as compiled, recomputation included."""
    sent_bytes: dict[str, float]
    """Mesh axis -> bytes that a chip sends in a step."""
    waiting_bytes: dict[str, float]
    """Mesh axis -> part of ``sent_bytes`` that is sent while the schedule computes no product."""
    time: StepTime

    @property
    def hbm_bytes(self) -> int:
        return CHIPS[self.where.name].hbm_bytes

    @property
    def fits(self) -> bool:
        """Whether the total is at most the share LIMIT (7/8) of a chip's memory."""
        return self.memory.total <= LIMIT * self.hbm_bytes

    @property
    def range_s(self) -> tuple[float, float]:
        """Estimated (fastest, slowest) seconds of a step: bounds of ``time``, never faster than the best known MFU."""
        fastest = self._ideal_s / MEASURED_MFU.get(self.where.name, BEST_MFU)
        return max(self.time.at_least_s, fastest), max(self.time.at_most_s, fastest)

    @property
    def mfu(self) -> tuple[float, float]:
        """(Lowest, highest) MFU for ``range_s``, in the convention of ``model_flops``."""
        fast, slow = self.range_s
        return self._ideal_s / slow, self._ideal_s / fast

    @property
    def _ideal_s(self) -> float:
        return self.model_flops / (self.where.devices_of(self.recipe.mesh) * CHIPS[self.where.name].peak_flops)

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object, which ``jobs/plan_pod.py`` prints last."""
        mesh, train = self.recipe.mesh, self.recipe.train
        return {
            "recipe": self.recipe.name, "topology": f"{self.where.name}:{self.where.topology}",
            "mesh": {"dcn": mesh.dcn, "fsdp": mesh.fsdp, "tp": mesh.tp}, "microbatches": train.microbatches,
            "remat": train.remat, "fits": self.fits, "hbm_peak_gib": round(self.memory.total / GIB, 2),
            "hbm_limit_gib": LIMIT * self.hbm_bytes / GIB,
            "memory_gib": {k: round(v / GIB, 3) for k, v in dataclasses.asdict(self.memory).items()},
            "compile_s": round(self.compile_s, 1), "model_flops_per_step": self.model_flops,
            "executed_flops_per_step": self.executed_flops,
            "executed_over_model": round(self.executed_flops / self.model_flops, 4),
            "product_flops_per_chip": self.program.products,
            "uncounted": self.program.uncounted, "sent_bytes_per_chip": self.sent_bytes,
            "waiting_bytes_per_chip": self.waiting_bytes,
            "collectives": [
                {**dataclasses.asdict(c), "group": len(c.group), "axis": axis_of(c.group, mesh)}
                for c in sorted(self.program.collectives, key=lambda c: -c.sent_bytes)
            ],
            "estimate": {"at_least_s": round(self.range_s[0], 2), "at_most_s": round(self.range_s[1], 2),
                         "mfu_6n_causal": [round(share, 3) for share in self.mfu]},
        }  # fmt: skip


def axis_of(group: tuple[int, ...], mesh: MeshConfig) -> str:
    """Mesh axes along which the devices of a group differ, joined by "+"; "none" if along none, "all" for an empty
    group. group: numbers of devices in mesh order (dcn, fsdp, tp), the last axis fastest."""
    if not group:
        return "all"
    places = np.unravel_index(np.array(group), (mesh.dcn, mesh.fsdp, mesh.tp))
    return "+".join(name for name, at in zip(("dcn", "fsdp", "tp"), places, strict=True) if np.ptp(at)) or "none"


def placed(recipe: Recipe, where: Devices, mesh: MeshConfig) -> Recipe:
    """The recipe for ``mesh`` on the devices ``where``, in which fsdp -1 is replaced by a number and the workers are
    those of ``where``. Raises ValueError if ``tp`` does not divide the heads, or mesh and devices do not match."""
    mesh = where.mesh_of(mesh)
    check_heads(recipe.model, mesh.tp)
    chips = where.devices_of(mesh)
    _, fsdp, _ = axis_sizes(mesh, chips, f"the {chips} chips of {mesh.dcn} x {where}")
    return dataclasses.replace(recipe, mesh=dataclasses.replace(mesh, fsdp=fsdp))
