"""The training step of a recipe compiled for a TPU slice that is not there: memory, arithmetic, communication.

libtpu compiles for a described topology without a chip. What it gives is the program that the slice would run, so bytes
of memory and of collectives and the number of operations are facts; times are estimates (``chips``). Without libtpu
only shardings are checked, on fake CPU devices. Knows nothing of Ray and of data.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import time
from typing import Any

import numpy as np

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.config.mesh import axis_sizes
from lemur_ray.train.aot.hlo import DTYPE_BYTES, Program, read
from lemur_ray.train.pod.chips import CHIPS, GIB, StepTime, step_time
from lemur_ray.train.pod.slices import Slice

LIMIT = 28 / 32
"""Share of a chip's memory that a plan may use: the rest is the runtime's, and a margin."""
_LIBTPU_NAMES = {"v5p": "v5"}
_NUM_SOURCES = 16


class NoLibtpu(Exception):
    """libtpu is not installed; the message names the extra."""


class DoesNotFit(Exception):
    """The compiler found no way to place the program in a chip's memory; the message says by how much."""


def environment(where: Slice, with_libtpu: bool, num_devices: int) -> dict[str, str]:
    """Variables that have to be set before jax is imported: no chip is looked for, CPU is the default platform."""
    out = {"JAX_PLATFORMS": "cpu"}
    if with_libtpu:
        out |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_ACCELERATOR_TYPE": where.pod_type}
        out["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # no chip is taken, so other processes may plan or train meanwhile
    else:
        flags = os.environ.get("XLA_FLAGS", "")
        out["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={num_devices}".strip()
    return out


def has_libtpu() -> bool:
    """Whether the compiler for TPU is installed."""
    return importlib.util.find_spec("libtpu") is not None


def devices(where: Slice, num_slices: int) -> list[Any]:
    """The slice's devices as descriptions, one per chip. Raises NoLibtpu, ValueError."""
    if not has_libtpu():
        raise NoLibtpu("libtpu is not installed: pip install 'lemur-ray[tpu]' brings the compiler for TPU")
    from jax.experimental import topologies

    name = where.generation.name
    options: dict[str, Any] = {"num_slices": num_slices} if num_slices > 1 else {}
    if name == "v4":
        options["chip_config_name"] = "megacore"  # a chip is one device, not two
    topology = f"{_LIBTPU_NAMES.get(name, name)}:{where.topology}"
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=topology, **options).devices)
    except (RuntimeError, NotImplementedError) as error:
        raise ValueError(f"libtpu knows no topology {topology}: {str(error).splitlines()[0]}") from error


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of one chip, by kind. Kinds share buffers over time, so ``temporaries`` is what is left of the total."""

    parameters: int
    optimizer: int
    batch: int
    gradients: int
    activations: int
    temporaries: int
    code: int
    host: int
    """In the memory of the host, beside the total."""

    @property
    def total(self) -> int:
        """What the program needs at once."""
        return sum(dataclasses.astuple(self)) - self.host


@dataclasses.dataclass(frozen=True)
class PodPlan:
    """What one training step needs of every chip, and what it might cost."""

    recipe: Recipe
    where: Slice
    memory: Memory
    program: Program
    compile_s: float
    model_flops: float
    """Per step, of the whole slice: 6N + causal attention."""
    executed_flops: float
    """The same, as compiled: recomputation included, whatever the model needs less."""
    sent_bytes: dict[str, float]
    """Mesh axis -> bytes that a chip sends in a step."""
    time: StepTime

    @property
    def hbm_bytes(self) -> int:
        """Memory of a chip."""
        return CHIPS[self.where.generation.name].hbm_bytes

    @property
    def fits(self) -> bool:
        """Within LIMIT of the memory."""
        return self.memory.total <= LIMIT * self.hbm_bytes

    @property
    def mfu(self) -> float:
        """Of the estimated time, in the convention of ``model_flops``."""
        chips = self.where.num_chips * self.recipe.mesh.dcn
        return self.model_flops / (chips * CHIPS[self.where.generation.name].peak_flops * self.time.estimate_s)

    def to_json(self) -> dict[str, Any]:
        """What ``jobs/plan_pod.py`` prints last."""
        mesh, train = self.recipe.mesh, self.recipe.train
        return {
            "recipe": self.recipe.name, "topology": f"{self.where.generation.name}:{self.where.topology}",
            "mesh": {"dcn": mesh.dcn, "fsdp": mesh.fsdp, "tp": mesh.tp}, "microbatches": train.microbatches,
            "remat": train.remat, "fits": self.fits, "hbm_peak_gib": round(self.memory.total / GIB, 2),
            "hbm_limit_gib": LIMIT * self.hbm_bytes / GIB,
            "memory_gib": {k: round(v / GIB, 3) for k, v in dataclasses.asdict(self.memory).items()},
            "compile_s": round(self.compile_s, 1), "model_flops_per_step": self.model_flops,
            "executed_flops_per_step": self.executed_flops,
            "executed_over_model": round(self.executed_flops / self.model_flops, 4),
            "sent_bytes_per_chip": self.sent_bytes,
            "collectives": [
                {**dataclasses.asdict(c), "group": len(c.group), "axis": axis_of(c.group, mesh)}
                for c in sorted(self.program.collectives, key=lambda c: -c.sent_bytes)
            ],
            "estimate": {"step_s": round(self.time.estimate_s, 2), "at_least_s": round(self.time.at_least_s, 2),
                         "at_most_s": round(self.time.at_most_s, 2), "mfu_6n_causal": round(self.mfu, 3)},
        }  # fmt: skip


def placed(recipe: Recipe, where: Slice, mesh: MeshConfig) -> Recipe:
    """The recipe on a slice with a mesh; ``fsdp`` -1 takes what dcn and tp leave. Raises ValueError."""
    chips = where.num_chips * mesh.dcn
    _, fsdp, _ = axis_sizes(mesh, chips, f"the {chips} chips of {mesh.dcn} x {where}")
    mesh = dataclasses.replace(
        mesh, use_tpu=True, fsdp=fsdp, topology=where.topology, accelerator_type=where.generation.accelerator_type,
        num_workers=where.num_hosts * mesh.dcn,
    )  # fmt: skip
    return dataclasses.replace(recipe, mesh=mesh)


def lower(recipe: Recipe, mesh: Any) -> Any:
    """The step traced for a mesh, state and batch abstract. Raises ValueError where shapes do not divide."""
    import jax
    import jax.numpy as jnp

    from lemur_ray.model.sharding import batch_sharding
    from lemur_ray.train.step import abstract_state, make_train_step

    rows, length, place = recipe.train.rows_per_step, recipe.data.seq_len, batch_sharding(mesh)
    kinds = dict.fromkeys(("tokens", "targets", "segment_ids", "positions"), jnp.int32)
    batch = {
        name: jax.ShapeDtypeStruct((rows, length), dtype, sharding=place)
        for name, dtype in {**kinds, "loss_weights": jnp.float32}.items()
    }
    batch["source"] = jax.ShapeDtypeStruct((rows,), jnp.int32, sharding=place)
    step: Any = make_train_step(recipe, mesh, num_sources=_NUM_SOURCES)
    return step.lower(abstract_state(recipe, mesh), batch)


def state_bytes(recipe: Recipe, mesh: Any) -> tuple[int, int]:
    """Bytes of the parameters and of the optimizer's state on one device."""
    import jax

    from lemur_ray.train.step import abstract_state

    state = abstract_state(recipe, mesh)

    def local(tree: Any) -> int:
        return sum(
            int(leaf.dtype.itemsize) * _product(leaf.sharding.shard_shape(leaf.shape)) for leaf in jax.tree.leaves(tree)
        )

    return local(state.params), local(state.opt)


def plan(recipe: Recipe, where: Slice) -> PodPlan:
    """Compile the step of a recipe that ``placed`` gave. Raises NoLibtpu, DoesNotFit, ValueError."""
    import jax

    from lemur_ray.model.flops import flops_per_token
    from lemur_ray.model.sharding import make_mesh

    mesh = make_mesh(recipe.mesh, devices(where, recipe.mesh.dcn))
    began = time.monotonic()
    lowered = lower(recipe, mesh)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise DoesNotFit(str(error).splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")) from error
    compile_s = time.monotonic() - began
    program = read(compiled.as_text(), lambda kernel, shapes: _attention_flops(recipe, kernel))
    chips = mesh.size
    sent: dict[str, float] = {}
    for collective in program.collectives:
        axis = axis_of(collective.group, recipe.mesh)
        sent[axis] = sent.get(axis, 0.0) + collective.sent_bytes
    flops = program.product_flops + program.kernel_flops
    sizes = {"dcn": recipe.mesh.dcn, "fsdp": recipe.mesh.fsdp, "tp": recipe.mesh.tp}
    torus = tuple(int(n) for n in where.topology.split("x"))
    return PodPlan(
        recipe, where, _memory(recipe, mesh, compiled.memory_analysis(), program), program, compile_s,
        model_flops=recipe.tokens_per_step * flops_per_token(recipe.model, recipe.data.seq_len),
        executed_flops=flops * chips, sent_bytes=sent,
        time=step_time(CHIPS[where.generation.name], torus, sizes, flops, sent),
    )  # fmt: skip


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _attention_flops(recipe: Recipe, kernel: str) -> float:
    """Operations of one call of a splash kernel: forward two products, backward five, blocks up to the diagonal."""
    from lemur_ray.model.attention.splash import block_size

    model, length, mesh = recipe.model, recipe.data.seq_len, recipe.mesh
    rows = recipe.train.rows_per_step // recipe.train.microbatches // (mesh.dcn * mesh.fsdp)
    blocks = length // block_size(length)
    done = (blocks + 1) / (2 * blocks)
    products = {"splash_mha_fwd": 2, "splash_mha_dkv": 5}
    count = next((n for name, n in products.items() if kernel.startswith(name)), 0)
    return count * done * 2.0 * rows * (model.num_heads // mesh.tp) * length**2 * model.head_dim


def axis_of(group: tuple[int, ...], mesh: MeshConfig) -> str:
    """The mesh axes along which the devices of a group differ, joined by "+"; "all" where every device takes part."""
    if not group:
        return "all"
    places = np.unravel_index(np.array(group), (mesh.dcn, mesh.fsdp, mesh.tp))
    return "+".join(name for name, at in zip(("dcn", "fsdp", "tp"), places, strict=True) if np.ptp(at)) or "none"


def _memory(recipe: Recipe, mesh: Any, analysis: Any, program: Program) -> Memory:
    parameters, optimizer = state_bytes(recipe, mesh)
    batch = int(analysis.argument_size_in_bytes) - parameters - optimizer
    used = int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes)
    gradients = parameters * (2 if recipe.train.microbatches > 1 else 1)
    activations = kept_bytes(recipe, mesh, program)
    left = used - gradients - activations
    if left < 0:  # gradients share the place of activations that are no longer needed
        gradients, left = max(0, gradients + left), 0
    return Memory(
        parameters, optimizer, batch, gradients, activations, left, int(analysis.generated_code_size_in_bytes),
        int(analysis.host_temp_size_in_bytes + analysis.host_argument_size_in_bytes),
    )  # fmt: skip


def kept_bytes(recipe: Recipe, mesh: Any, program: Program) -> int:
    """Bytes that the forward loop over the layers keeps for the backward one, on one device."""
    import jax

    from lemur_ray.model.llama import abstract_params
    from lemur_ray.model.sharding import param_shardings

    layers = recipe.model.num_layers
    shapes, places = abstract_params(recipe.model)["layers"], param_shardings(recipe.model, mesh)["layers"]
    weights = {
        place.shard_shape(leaf.shape)
        for leaf, place in zip(jax.tree.leaves(shapes), jax.tree.leaves(places), strict=True)
    }
    forward = [loop for loop in program.loops if loop.trips == layers and "transpose" not in loop.origin]
    kept = [
        DTYPE_BYTES[dtype] * _product(shape)
        for loop in forward
        for dtype, shape in loop.carried
        if shape[:1] == (layers,) and shape not in weights
    ]
    return sum(kept)
