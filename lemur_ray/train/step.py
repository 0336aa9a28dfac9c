"""One optimizer step as a pure function: loss, gradient, guard, clip, update.

The loss of a batch is a sum over tokens divided once by the batch's sum of weights or its normaliser, so it does not
depend on how the batch is cut into microbatches or spread over devices. Knows nothing of Ray, files or where batches
come from."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from lemur_ray.config import Recipe
from lemur_ray.model.attention.dispatch import choose
from lemur_ray.model.attention.interface import Limits
from lemur_ray.model.layout import Layout
from lemur_ray.model.llama import (
    Forward,
    Params,
    abstract_params,
    hidden_states,
    init_params,
    output_head,
    stack_layers,
    unstack_layers,
)
from lemur_ray.model.lora import adapted, adapter_shardings, first_adapters
from lemur_ray.model.loss import Losses, cross_entropy
from lemur_ray.model.sharding import batch_sharding, like_params, param_shardings, placed_like, replicated
from lemur_ray.train.guard import check, init_guard
from lemur_ray.train.optimizer import direction, learning_rate
from lemur_ray.train.pod.compiler_options import attention_block, step_options

Batch = dict[str, jax.Array]
"""tokens, targets, segment_ids, positions: (rows, length) int32; loss_weights: same, float32; source: (rows,) int32.

``normaliser``, optional: (rows,) float32, whose sum divides the loss in place of the sum of the weights, which means
nothing where weights have signs (reinforcement: the number of trained ids)."""
Metrics = dict[str, jax.Array]

UNROLL_LAYERS = 8
"""Maximum number of layers to unroll on CPU: a loop costs copies, but deeper models would compile for minutes."""


@partial(jax.tree_util.register_dataclass, data_fields=["step", "params", "opt"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class TrainState:
    """State of a run between two steps, without its position in the data."""

    step: Any
    """() int32: batches consumed, skipped ones included."""
    params: Any
    """Trained parameters, float32: the model's tree, or the adapters' tree of ``model.lora``."""
    opt: Any
    """{"rule": state of the update rule, "guard": GuardState}."""


def init_state(recipe: Recipe, params: Params | None = None) -> TrainState:
    """The state before the first step: fresh optimizer state, and the parameters ``params`` (None: random ones, by
    ``train.seed``). With adapters ``params`` is the frozen base, and the state holds new adapters."""
    params = init_params(recipe.model, recipe.train.seed) if params is None else params
    if recipe.lora.rank:
        params = first_adapters(recipe.model, recipe.lora, recipe.train.seed, params)
    rule = direction(recipe.optimizer, recipe.model, adapters=recipe.lora.rank > 0)
    opt = {"rule": rule.init(params), "guard": init_guard()}
    return TrainState(jnp.zeros((), jnp.int32), params, opt)


def abstract_state(recipe: Recipe, mesh: Mesh | None = None) -> TrainState:
    """Shapes and dtypes of the state, with shardings if a mesh is given; for restore and compile."""
    shapes = jax.eval_shape(lambda params: init_state(recipe, params), abstract_params(recipe.model))
    if mesh is None:
        return shapes
    if recipe.lora.rank:
        places = placed_like(shapes, shapes.params, adapter_shardings(recipe.model, recipe.lora, mesh), mesh)
    else:
        places = like_params(shapes, recipe.model, mesh)
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), shapes, places
    )


class Execution(NamedTuple):
    """How a step is computed on a platform: dtypes, attention kernel, unrolling. All give one result up to rounding."""

    forward: Forward
    unroll: bool
    """Layers are unrolled in the program instead of run in a compiled loop."""
    fallback: str
    """Reason why attention is not the platform's fastest kernel; "" if it is."""


def execution(recipe: Recipe, mesh: Mesh | None = None) -> Execution:
    """The fastest execution on the mesh's platform (None: jax's default, one device).
    On CPU bfloat16 is for operands of products alone: everything else is slower in it there."""
    device = jax.devices()[0] if mesh is None else mesh.devices.flat[0]
    platform, capability = device.platform, getattr(device, "compute_capability", "9.0")  # others than GPUs have none
    major, minor = map(int, capability.split("."))
    cpu, devices = platform == "cpu", 1 if mesh is None else mesh.size
    dtype = jnp.dtype(recipe.train.compute_dtype)
    attention, fallback = choose(
        platform, devices, recipe.data.seq_len, recipe.model.head_dim, dtype, recipe.model.attention_cap,
        (major, minor),
    )  # fmt: skip
    compute_dtype, layout = jnp.dtype(jnp.float32) if cpu else dtype, Layout(mesh if devices > 1 else None)
    documents = recipe.data.max_documents if recipe.data.mask_documents else 1
    limits = Limits(max_documents=documents, block=recipe.train.attention_block or attention_block(device))
    forward = Forward(compute_dtype, dtype, recipe.train.remat, attention, limits, layout)
    return Execution(forward, cpu and recipe.model.num_layers <= UNROLL_LAYERS, fallback)


def _losses(params: Params, batch: Batch, recipe: Recipe, how: Execution, base: Params | None) -> Losses:
    """Losses of a batch. params: with a list of layers if they are unrolled, or adapters of the frozen ``base``."""
    if base is not None:
        params = adapted(base, params, recipe.lora)
        params = unstack_layers(params) if how.unroll else params
    segments = batch["segment_ids"]
    positions = batch["positions"]
    if not recipe.data.mask_documents:
        # Plain concatenation, as in the paper's base code: one document per row, padding included.
        segments = jnp.ones_like(segments)
        positions = jnp.broadcast_to(jnp.arange(segments.shape[1], dtype=positions.dtype), segments.shape)
    x = hidden_states(params, recipe.model, batch["tokens"], segments, positions, how.forward)
    dtype, layout = how.forward.operand_dtype, how.forward.layout
    return cross_entropy(
        x, output_head(params), batch["targets"], batch["loss_weights"], dtype, layout, recipe.model.logit_cap
    )


def _sums(
    params: Params, batch: Batch, recipe: Recipe, how: Execution, base: Params | None
) -> tuple[jax.Array, jax.Array]:
    """Weighted sum of losses: (of the batch (), per row (B,)). base: frozen parameters if ``params`` are adapters."""
    losses = _losses(params, batch, recipe, how, base)
    return losses.total, jnp.sum(losses.per_token * batch["loss_weights"], axis=1)


def token_losses(params: Params, batch: Batch, recipe: Recipe, how: Execution) -> jax.Array:
    """(rows, length) float32: minus the log-probability of each target in nats, whatever its loss weight. how:
    ``execution`` of the platform."""
    return _losses(unstack_layers(params) if how.unroll else params, batch, recipe, how, None).per_token


def gradients(
    params: Params, batch: Batch, recipe: Recipe, how: Execution, base: Params | None = None
) -> tuple[jax.Array, Params, jax.Array]:
    """(sum of losses (), its float32 gradient, sum of losses per row (B,)), accumulated over the microbatches.
    Microbatch i of m has rows i, i + m, .., so every device works on each. how: ``execution`` of the platform; base:
    frozen base of adapters, if any. Raises ValueError if m does not divide them."""
    layout = how.forward.layout
    if layout.mesh is not None and layout.mesh.shape["dcn"] > 1 and not layout.within_slice:
        return _gradients_of_slices(params, batch, recipe, how, base)
    microbatches = recipe.train.microbatches
    rows = batch["tokens"].shape[0]
    if rows % microbatches:
        raise ValueError(f"train.microbatches {microbatches} does not divide a batch of {rows} rows: choose a divisor")
    unroll = how.unroll and base is None
    at = unstack_layers(params) if unroll else params
    gradient = jax.value_and_grad(_sums, has_aux=True)
    if microbatches == 1:
        (total, row_losses), grads = gradient(at, batch, recipe, how, base)
    else:

        def one(carry: tuple[jax.Array, Params], part: Batch) -> tuple[tuple[jax.Array, Params], jax.Array]:
            (total, row_losses), grads = gradient(at, part, recipe, how, base)
            return (carry[0] + total, jax.tree.map(jnp.add, carry[1], grads)), row_losses

        parts = {
            name: array.reshape(rows // microbatches, microbatches, *array.shape[1:]).swapaxes(0, 1)
            for name, array in batch.items()
        }
        zero = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, at))
        (total, grads), row_losses = jax.lax.scan(one, zero, parts)
        row_losses = row_losses.swapaxes(0, 1).reshape(rows)
    return total, stack_layers(grads) if unroll else grads, row_losses


def _gradients_of_slices(
    params: Params, batch: Batch, recipe: Recipe, how: Execution, base: Params | None
) -> tuple[jax.Array, Params, jax.Array]:
    """`gradients` on several slices: each accumulates its own gradient, summed once at the end of the step."""
    layout = how.forward.layout
    inside = dataclasses.replace(how.forward, layout=dataclasses.replace(layout, within_slice=True))
    alone = how._replace(forward=inside)

    def on_slice(params: Params, batch: Batch, base: Params | None) -> tuple[jax.Array, Params, jax.Array]:
        total, grads, row_losses = gradients(params, batch, recipe, alone, base)
        return jax.lax.psum(total, "dcn"), jax.tree.map(lambda g: jax.lax.psum(g, "dcn"), grads), row_losses

    return layout.per_slice(on_slice, (P(), P("dcn"), P()), (P(), P(), P("dcn")))(params, batch, base)


def train_step(
    state: TrainState, batch: Batch, base: Params | None = None, *, recipe: Recipe, how: Execution, num_sources: int
) -> tuple[TrainState, Metrics]:
    """One optimizer step: (next state, metrics as in ``make_train_step``), not compiled. A skipped step leaves
    parameters and optimizer state as they are, but counts. base: frozen base of adapters. num_sources: exclusive upper
    bound of batch["source"]. how: ``execution`` of the platform."""
    rule = direction(recipe.optimizer, recipe.model, how.forward.operand_dtype, adapters=base is not None)
    total, grads, row_losses = gradients(state.params, batch, recipe, how, base)
    weight_sum = jnp.sum(batch["loss_weights"])
    divisor = jnp.sum(batch["normaliser"]) if "normaliser" in batch else weight_sum
    # A batch without a trained token has gradient zero, not 0 / 0.
    scale = 1.0 / jnp.maximum(divisor, 1e-6)
    loss = total * scale
    grad_norm = optax.tree.norm(grads) * scale
    skip, guard = check(state.opt["guard"], loss, grad_norm, recipe.train.spike_sigmas)
    if "normaliser" in batch:
        nothing = divisor <= 0
        skip, guard = skip | nothing, jax.tree.map(lambda a, b: jnp.where(nothing, a, b), state.opt["guard"], guard)
    clip = recipe.optimizer.clip_norm
    factor = scale * jnp.minimum(1.0, clip / jnp.maximum(grad_norm, 1e-12)) if clip > 0 else scale
    grads = jax.tree.map(lambda g: g * factor, grads)
    towards, rule_state = rule.update(grads, state.opt["rule"], state.params)
    lr = learning_rate(recipe.optimizer, recipe.train.steps, state.step + 1)

    def keep(old: Any, new: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(skip, a, b), old, new)

    params = keep(state.params, jax.tree.map(lambda p, d: p - lr * d, state.params, towards))
    after = TrainState(state.step + 1, params, {"rule": keep(state.opt["rule"], rule_state), "guard": guard})
    by_source = partial(jax.ops.segment_sum, segment_ids=batch["source"], num_segments=num_sources)
    metrics = {
        "loss": loss,
        "weight_sum": weight_sum,
        "source_loss_sum": by_source(row_losses),
        "source_weight_sum": by_source(jnp.sum(batch["loss_weights"], axis=1)),
        "grad_norm": grad_norm,
        "param_norm": optax.tree.norm(params),
        "update_norm": jnp.where(skip, 0.0, lr * optax.tree.norm(towards)),
        "lr": lr,
        "skipped": skip,
    }
    return after, metrics


def make_train_step(
    recipe: Recipe, mesh: Mesh | None = None, *, num_sources: int = 64
) -> Callable[..., tuple[TrainState, Metrics]]:
    """Jit a step for a recipe: (state, batch[, frozen base of adapters]) -> (state, metrics).
    The state argument is donated. mesh: the state has the shardings of ``abstract_state``, the batch is split by rows.
    num_sources: exclusive upper bound of batch["source"]. Metrics are () float32 (``skipped`` bool) and, per source,
    (num_sources,) sums of losses and weights."""
    step = partial(train_step, recipe=recipe, how=execution(recipe, mesh), num_sources=num_sources)
    if mesh is None:
        return jax.jit(step, donate_argnums=0)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(recipe, mesh))
    base = (param_shardings(recipe.model, mesh),) if recipe.lora.rank else ()
    return jax.jit(
        step, donate_argnums=0, compiler_options=step_options(mesh.devices.flat[0]),
        in_shardings=(shardings, batch_sharding(mesh), *base), out_shardings=(shardings, replicated(mesh)),
    )  # fmt: skip
