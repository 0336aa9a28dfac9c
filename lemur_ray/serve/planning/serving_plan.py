"""The plan of an engine on a slice or on GPUs: memory, collectives, broken bounds and an estimate of its speed.

Bytes and collectives come from compiled programs, of some layers if not of all; the speed is a formula."""

import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute import ahead_of_time
from lemur_ray.serve.compute.ahead_of_time import Step
from lemur_ray.serve.compute.attention import BLOCK, block_bytes
from lemur_ray.serve.compute.cache_layout import pool_size
from lemur_ray.serve.compute.devices import check_split
from lemur_ray.serve.compute.programs import is_scanned, sums_for
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.planning import machine_defaults as formulas
from lemur_ray.serve.planning.machine_defaults import ESTIMATED_CONTEXT, TILE, Machine, gib
from lemur_ray.serve.planning.machines import machine_of
from lemur_ray.train.aot import hlo, hlo_text
from lemur_ray.train.aot.absent_devices import devices as described
from lemur_ray.train.aot.memory_traffic import memory_bytes
from lemur_ray.train.pod.chips import GIB
from lemur_ray.train.pod.gpu_hosts import Devices

_MOST_BYTES = {"tpu": formulas.STEP_BYTES, "gpu": 2**26}
"""Platform -> bound on a step's temporaries and code."""
_TRAFFIC, _V5P_TRAFFIC = (0.02, 0.20), (0.10, 0.70)
"""Bounds on what a step moves in a TPU's memory beside its weights, as shares of them: of 64 decoding rows, and of 512
prompt tokens. On a v5p activations pass through it."""
PER_LAYER = {"all_reduce": 2, "ordered": 4, "gather": 4}
"""Kind of sums -> collectives of a layer."""
_ON_CHIP = re.compile(r"= \S+S\([1-4]\)\} copy\(")
"""A copy into a TPU's fast memory, which a product that reads a weight there makes anyway."""


@dataclass(frozen=True)
class PlannedStep:
    """One step on one device; cache, code and collectives are scaled from the compiled layers to all of the model's."""

    step: Step
    collectives: tuple[hlo.Collective, ...]
    copied_bytes: int
    """Largest array in a dtype of weights that a copy in the compiled program writes to the device's memory."""
    traffic_ratio: float
    """Bytes that the compiled layers read and write in the device's memory, over those of their weights"""


@dataclass(frozen=True)
class ServingPlan:
    """Plan of an engine on devices that are not attached: the memory of each of its compiled steps, in bytes of one
    device. ``compiled_layers``: number of layers that were compiled, from which the others are estimated."""

    model: str
    config: ModelConfig
    options: EngineOptions
    where: Devices
    compiled_layers: int
    steps: tuple[PlannedStep, ...]

    @property
    def machine(self) -> Machine:
        return machine_of(self.where)

    @property
    def int8(self) -> bool:
        return self.options.quantization == "int8"

    @property
    def peak(self) -> int:
        """Bytes that the largest step needs on one device."""
        return max(planned.step.total for planned in self.steps)

    @property
    def limit(self) -> int:
        """Bytes of a device's memory that a plan may use."""
        return int(formulas.USABLE[self.machine.platform] * self.machine.memory_bytes)

    @property
    def cache_tokens(self) -> int:
        """Tokens that the whole cache holds, without the scrap block."""
        return (pool_size(self.config, self.options, self.machine.num_devices)[1] - 1) * BLOCK

    @property
    def decode_s(self) -> float:
        """Estimated seconds of a decode step of all slots."""
        weights, rows = self.steps[0].step.weights, self.options.max_slots
        return formulas.decode_s(self.config, self.machine, weights, rows, ESTIMATED_CONTEXT)

    def broken(self) -> list[str]:
        """Bounds that the plan breaks, one sentence each; empty if it keeps all."""
        out = [] if self.peak <= self.limit else [f"{gib(self.peak)} is more than the {gib(self.limit)} usable"]
        sums = sums_for(self.options, self.machine.platform)
        expected = PER_LAYER[sums] * self.config.num_layers if self.machine.num_devices > 1 else 0
        smallest = self.config.num_heads * self.config.head_dim * self.config.dim // self.machine.num_devices
        for planned in self.steps:
            step, kind = planned.step, name_of(planned.step)
            if step.temporaries > (most := _MOST_BYTES[self.machine.platform]):
                out.append(f"{kind}: {gib(step.temporaries)} of temporaries and code, at most {gib(most)}")
            if planned.traffic_ratio > (times := self._most_traffic(step)):
                out.append(f"{kind}: memory traffic {planned.traffic_ratio:.3f} times the weights, at most {times:.3f}")
            layers = sum(c.count for c in planned.collectives if _is_in_layers(c, self.config.num_layers))
            if layers != expected and self.config.num_layers > 1:
                out.append(f"{kind}: {layers} collectives in layers, expected {expected} for sums {sums}")
            if planned.copied_bytes >= smallest * (1 if self.int8 else formulas.itemsize_of(self.options)):
                out.append(f"{kind}: an array of {gib(planned.copied_bytes)} is copied, as large as a weight or pool")
        return out

    def _most_traffic(self, step: Step) -> float:
        """Bound on the memory traffic of a step, as a multiple of the weights; none on GPUs and on a single chip."""
        if self.machine.platform != "tpu" or self.machine.num_devices == 1:
            return math.inf
        decode, prefill = _V5P_TRAFFIC if self.where.name == "v5p" else _TRAFFIC
        share = decode if step.length == 1 else prefill
        # Activations grow with the tokens; those of int8 weights are as large as those of bfloat16.
        by_tokens = max(1.0, (step.singles + step.rows * step.length) / (64 if step.length == 1 else 512))
        return 1 + share * by_tokens * (1 + (self.int8 and self.where.name == "v5p"))

    def to_json(self) -> dict[str, Any]:
        """The JSON object that ``jobs/plan_serving.py`` prints last."""
        machine, step = self.machine, self.steps[0].step
        return {
            "model": self.model, "topology": f"{self.where.name}:{self.where.topology}",
            "devices": machine.num_devices, "fits": self.peak <= self.limit, "broken": self.broken(),
            "layers": self.config.num_layers, "compiled_layers": self.compiled_layers,
            "weights_gib": round(step.weights / GIB, 3), "cache_gib": round(step.cache / GIB, 3),
            "cache_tokens": self.cache_tokens, "peak_gib": round(self.peak / GIB, 3),
            "limit_gib": round(self.limit / GIB, 3), "sums": sums_for(self.options, machine.platform),
            "steps": [
                {**planned.step.to_json(), "copied_bytes": planned.copied_bytes,
                 "traffic_ratio": round(planned.traffic_ratio, 4), "collectives": [
                    {**dataclasses.asdict(c), "group": len(c.group)} for c in planned.collectives]}
                for planned in self.steps
            ],
            "estimate": {"decode_s": round(self.decode_s, 5), "context": ESTIMATED_CONTEXT,
                         "tokens_per_s": round(self.options.max_slots / self.decode_s)},
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield the plan as lines of text for people."""
        machine, step, layers = self.machine, self.steps[0].step, self.config.num_layers
        yield f"{self.model} on {self.where}, {self.options.dtype}{', int8 weights' if self.int8 else ''}: compiled"
        if self.compiled_layers < layers:
            yield (
                f"compiled are {self.compiled_layers} of {layers} layers: code and collectives of layers are scaled to "
                f"{layers}, intermediate results are those compiled; weights and cache are exact (--layers 0: all)"
            )
        yield (
            f"a device: weights {gib(step.weights)}, cache {gib(step.cache)} = {self.cache_tokens:,} tokens, peak "
            f"{gib(self.peak)} of {gib(self.limit)} usable ({'fits' if self.peak <= self.limit else 'DOES NOT FIT'})"
        )
        for planned in self.steps:
            yield f"{planned.step}, memory traffic {planned.traffic_ratio:.3f} times the weights"
            for c in sorted(planned.collectives, key=lambda c: -c.sent_bytes):
                shape = f"{c.dtype}[{','.join(map(str, c.shape))}]"
                yield f"  {c.count:4d} x {c.kind} of {shape}, {c.sent_bytes / 1e6:.2f} MB sent: {c.origin or 'unknown'}"
        yield f"a token: 1 program, 1 array of {step.host_bytes / 1e3:.1f} kB from the host, no wait unless constrained"
        rows, context, prompts = self.options.max_slots, ESTIMATED_CONTEXT, self.options.prefill_tiles * TILE
        yield (
            f"an estimate, nothing was measured: {self.decode_s * 1e3:.1f} ms a decode step of {rows} rows of "
            f"{context:,} tokens = {rows / self.decode_s:,.0f} tokens/s, {prompts} prompt tokens beside"
        )
        yield (
            f"as flags: --engine.tensor-parallel {machine.num_devices} --engine.cache-bytes {self.options.cache_bytes} "
            f"--engine.prefill-tiles {self.options.prefill_tiles}"
        )
        yield from (f"BROKEN: {sentence}" for sentence in self.broken())


def name_of(step: Step) -> str:
    """ "decode", "prefill" or "mixed"."""
    return "decode" if step.length == 1 else "mixed" if step.singles else "prefill"


def plan(
    model: str, config: ModelConfig, options: EngineOptions, where: Devices, layers: int, *, every_shape: bool
) -> ServingPlan:
    """Compile an engine's largest steps (every_shape: all) for devices that are not attached, and plan from them.
    model: name for the report. layers: number to compile, from which the others are scaled; 0: all; without effect
    where layers are scanned. Raises EngineDoesNotFit, ValueError if the model does not divide over the devices, and
    NoLibtpu or NoGpuCompiler without the compiler."""
    machine = machine_of(where)
    check_split(config, machine.num_devices)
    absent = described(where)
    # One layer alone would not tell which collectives belong to it.
    all_layers = not layers or is_scanned(config, machine.num_devices, machine.platform)
    compiled = config.num_layers if all_layers else min(max(2, layers), config.num_layers)
    small = dataclasses.replace(config, num_layers=compiled)
    blocks = pool_size(config, options, machine.num_devices)[1]
    less = dataclasses.replace(
        options, cache_bytes=(blocks - 1) * block_bytes(small, options.dtype, machine.num_devices)
    )
    weights = ahead_of_time.weight_bytes(config, options, machine.num_devices, machine.platform)
    steps = []
    for rows, length in ahead_of_time.shapes(options, every_shape=every_shape):
        step = ahead_of_time.compile_step(small, less, absent, rows, length, machine.platform)
        steps.append(_scaled(step, config, compiled, options.dtype, weights))
    return ServingPlan(model, config, options, where, compiled, tuple(steps))


def _scaled(step: Step, config: ModelConfig, compiled: int, dtype: str, weights: int) -> PlannedStep:
    """A step of ``compiled`` layers with cache, code and collectives of all layers. weights: bytes of those of all."""
    by = config.num_layers / compiled
    program, dtypes = hlo.read(step.hlo, dynamic_trips=1), ("s8", {"float32": "f32", "bfloat16": "bf16"}[dtype])
    in_layers = (_times(c, by) if compiled > 1 and _is_in_layers(c, compiled) else c for c in program.collectives)
    in_memory = "\n".join(line for line in step.hlo.splitlines() if not _ON_CHIP.search(line))
    aliases = re.findall(r"output_to_operand_aliasing=\{\{\}.*calls=%([\w.\-]+)", in_memory)
    copies = [
        hlo_text.size_bytes(i.shapes[:1])
        for computation, instructions in hlo_text.parse(in_memory)[0].items()
        for i in instructions
        if i.opcode == "copy" and i.shapes[0][0] in dtypes and computation not in aliases
    ]
    code = int(step.code * by)
    scaled = dataclasses.replace(
        step, weights=weights, cache=int(step.cache * by), code=code, temporaries=step.temporaries - step.code + code
    )
    return PlannedStep(scaled, tuple(in_layers), max(copies, default=0), memory_bytes(step.hlo) / step.weights)


def _is_in_layers(collective: hlo.Collective, layers: int) -> bool:
    """Whether each of ``layers`` layers asks for a collective, not the drawing of tokens behind them."""
    return collective.count % layers == 0 and "cut_logits.py" not in collective.origin


def _times(collective: hlo.Collective, by: float) -> hlo.Collective:
    count, sent = round(collective.count * by), collective.sent_bytes * by
    return dataclasses.replace(collective, count=count, sent_bytes=sent)
