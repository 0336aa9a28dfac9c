"""Compile the training step of a recipe for an absent TPU slice or GPUs: memory, arithmetic, communication.

The compiled program is the one that the devices would run. Without libtpu only shardings are checked, on fake CPU
devices. Import it once the environment is set (``absent_devices``), which jax reads. Knows nothing of Ray and of
data."""

import math
import time
from typing import Any

import jax
import jax.numpy as jnp

from lemur_ray.config import Recipe
from lemur_ray.model.attention.splash import LANES, block_size, blocks_computed, is_fused
from lemur_ray.model.flops import flops_per_token
from lemur_ray.model.llama import abstract_params
from lemur_ray.model.lora import frozen_dtypes
from lemur_ray.model.sharding import batch_sharding, make_mesh, param_shardings
from lemur_ray.train.aot.absent_devices import devices
from lemur_ray.train.aot.hlo import Program, read
from lemur_ray.train.aot.hlo_text import DTYPE_BYTES
from lemur_ray.train.aot.pod_plan import BlockDoesNotFit, Memory, PodPlan, StepDoesNotFit, axis_of
from lemur_ray.train.pod.chips import CHIPS, step_time
from lemur_ray.train.pod.gpu_hosts import Devices
from lemur_ray.train.pod.placement import along_torus
from lemur_ray.train.pod.slices import on_devices, run_shape
from lemur_ray.train.step import abstract_state, execution, make_train_step

_NUM_SOURCES = 16
_GPU_BLOCK = 128
"""Tokens of a block of cuDNN's attention, below whose size nothing is skipped; an assumption."""


def lower(recipe: Recipe, mesh: Any) -> Any:
    """Lower the training step with abstract state and batch, jax's stage before ``compile``. mesh: jax's. Raises
    ValueError if shapes do not divide over the mesh."""
    rows, length, place = recipe.train.rows_per_step, recipe.data.seq_len, batch_sharding(mesh)
    kinds = dict.fromkeys(("tokens", "targets", "segment_ids", "positions"), jnp.int32)
    batch = {
        name: jax.ShapeDtypeStruct((rows, length), dtype, sharding=place)
        for name, dtype in {**kinds, "loss_weights": jnp.float32}.items()
    }
    batch["source"] = jax.ShapeDtypeStruct((rows,), jnp.int32, sharding=place)
    step: Any = make_train_step(recipe, mesh, num_sources=_NUM_SOURCES)
    return step.lower(abstract_state(recipe, mesh), batch, *([abstract_base(recipe, mesh)] if recipe.lora.rank else []))


def abstract_base(recipe: Recipe, mesh: Any) -> Any:
    """Shapes, dtypes and shardings (a tree of ShapeDtypeStruct) of the frozen base of an adapter run. mesh: jax's."""
    dtypes = frozen_dtypes(recipe.model, jnp.dtype(recipe.train.compute_dtype))
    return jax.tree.map(
        lambda leaf, dtype, place: jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=place),
        abstract_params(recipe.model), dtypes, param_shardings(recipe.model, mesh),
    )  # fmt: skip


def state_bytes(recipe: Recipe, mesh: Any) -> tuple[int, int]:
    """(bytes of trained parameters, bytes of optimizer state) on one device. mesh: jax's."""
    state = abstract_state(recipe, mesh)
    return _local_bytes(state.params), _local_bytes(state.opt)


def _local_bytes(tree: Any) -> int:
    """Bytes of a tree of abstract arrays on one device."""
    return sum(
        int(leaf.dtype.itemsize) * math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in jax.tree.leaves(tree)
    )


def plan(recipe: Recipe, where: Devices) -> PodPlan:
    """Compile the step of a recipe that ``placed`` returned for ``where``; returns its costs (takes minutes for a large
    model). Raises NoLibtpu or NoGpuCompiler without the compiler, StepDoesNotFit if a device's memory does not suffice,
    and BlockDoesNotFit if blocks of attention exceed its scoped memory."""
    tokens = recipe.tokens_per_step
    recipe = on_devices(recipe, run_shape(recipe.mesh))
    ordered = along_torus(devices(where, recipe.mesh.dcn), recipe.mesh.dcn, recipe.mesh.fsdp, recipe.mesh.tp)
    mesh = make_mesh(recipe.mesh, ordered)
    block = execution(recipe, mesh).forward.limits.block
    began = time.monotonic()
    lowered = lower(recipe, mesh)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise does_not_fit(str(error), recipe.data.seq_len, block) from error
    compile_s = time.monotonic() - began
    program = read(compiled.as_text(), lambda kernel, shapes: attention_flops(recipe, kernel, block))
    chips = mesh.size
    sent: dict[str, float] = {}
    waiting: dict[str, float] = {}
    for collective in program.collectives:
        axis = axis_of(collective.group, recipe.mesh)
        sent[axis] = sent.get(axis, 0.0) + collective.sent_bytes
        if not collective.overlapped:
            waiting[axis] = waiting.get(axis, 0.0) + collective.sent_bytes
    flops = program.product_flops + program.kernel_flops
    sizes = {"dcn": recipe.mesh.dcn, "fsdp": recipe.mesh.fsdp, "tp": recipe.mesh.tp}
    torus = tuple(int(n) for n in where.topology.split("x"))
    return PodPlan(
        recipe, where, _memory(recipe, mesh, compiled.memory_analysis(), program), program, compile_s,
        model_flops=tokens * flops_per_token(recipe.model, recipe.data.seq_len),
        executed_flops=flops * chips, sent_bytes=sent, waiting_bytes=waiting,
        time=step_time(CHIPS[where.name], torus, sizes, flops, sent, waiting),
    )  # fmt: skip


def does_not_fit(message: str, length: int, most: int) -> StepDoesNotFit:
    """The error to raise for XLA's ``message`` that memory is exhausted. length: tokens of a row. most: maximum tokens
    of a block of attention."""
    if "ScopedVmemOom" not in message or "splash" not in message:
        return StepDoesNotFit(message.splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: "))
    size = block_size(length, most)
    smaller = max((n for n in range(LANES, size, LANES) if length % n == 0), default=0)
    advice = f"try --train.attention-block {smaller}" if smaller else f"no smaller block divides {length}"
    return BlockDoesNotFit(f"attention in blocks of {size} tokens exceeds scoped vmem: {advice}")


_KERNEL_PRODUCTS = {
    "splash_mha_fwd": 2, "splash_mha_dkv": 4, "splash_mha_dq": 3,
    "__cudnn$fmhaSoftmaxBackward": 5, "__cudnn$fmhaSoftmax": 2,
    "__cudnn$fmhaScaleBiasSoftmaxBackward": 5, "__cudnn$fmhaScaleBiasSoftmax": 2,
}  # fmt: skip
"""Prefix of an attention kernel's name -> number of matrix products in it; the first matching prefix counts."""


def attention_flops(recipe: Recipe, kernel: str, block: int = 512) -> float:
    """FLOPs that one device spends on one call of the attention kernel with the HLO name ``kernel``: those of all
    blocks up to the diagonal, averaged over layers with and without a window; 0 for other kernels. recipe: as
    ``train.pod.slices.on_devices`` returns it, because the rows of a device follow from its rows per step and
    microbatches. block: maximum tokens of a block of the TPU kernel; unused for cuDNN. For cuDNN, which skips blocks
    between documents, this is the maximum: one document per row."""
    model, length, mesh = recipe.model, recipe.data.seq_len, recipe.mesh
    rows = recipe.train.rows_per_step // recipe.train.microbatches // (mesh.dcn * mesh.fsdp)
    on_gpu = kernel.startswith("__cudnn")
    size = _GPU_BLOCK if on_gpu else block_size(length, block)
    # Kernels of layers with and without a window have one name: each call counts as the mean over all layers.
    windows = (model.window_of(i) for i in range(model.num_layers))
    done = sum(blocks_computed(length, window, size) for window in windows) / model.num_layers
    width = model.head_dim if on_gpu else -(-model.head_dim // LANES) * LANES
    count = next((n for name, n in _KERNEL_PRODUCTS.items() if kernel.startswith(name)), 0)
    if kernel.startswith("splash_mha_dkv") and is_fused(length, size):
        count = 5
    return count * done * 2.0 * rows * (model.num_heads // mesh.tp) * length**2 * width


def _memory(recipe: Recipe, mesh: Any, analysis: Any, program: Program) -> Memory:
    parameters, optimizer = state_bytes(recipe, mesh)
    base = _local_bytes(abstract_base(recipe, mesh)) if recipe.lora.rank else 0
    batch = int(analysis.argument_size_in_bytes) - base - parameters - optimizer
    used = int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes)
    gradients = parameters * (2 if recipe.train.microbatches > 1 else 1)
    activations = saved_bytes(recipe, mesh, program)
    left = used - gradients - activations
    if left < 0:  # gradients reuse the buffers of dead activations
        gradients, left = max(0, gradients + left), 0
    return Memory(
        base + parameters, optimizer, batch, gradients, activations, left, int(analysis.generated_code_size_in_bytes),
        int(analysis.host_temp_size_in_bytes + analysis.host_argument_size_in_bytes),
    )  # fmt: skip


def saved_bytes(recipe: Recipe, mesh: Any, program: Program) -> int:
    """Bytes that the forward loop over the layers saves for the backward loop, on one device: of the arrays with a row
    for each layer that the loop carries, but those of a weight's shape. 0 if the program has no such loop. mesh: jax's,
    of that step. program: costs of the compiled step."""
    layers = recipe.model.num_layers // recipe.model.period
    shapes, places = abstract_params(recipe.model)["layers"], param_shardings(recipe.model, mesh)["layers"]
    weights = {
        place.shard_shape(leaf.shape)
        for leaf, place in zip(jax.tree.leaves(shapes), jax.tree.leaves(places), strict=True)
    }
    # A compiler that begins a layer's collectives one layer early takes the first or last layer out of the loop.
    forward = [loop for loop in program.loops if layers - loop.trips in (0, 1) and "transpose" not in loop.origin]
    sizes = [
        sum(
            DTYPE_BYTES[dtype] * math.prod(shape)
            for dtype, shape in loop.carried
            if shape[:1] == (layers,) and shape not in weights
        )
        for loop in forward
    ]
    return max(sizes, default=0)
