"""Text report of a pod plan: memory by kind, FLOPs, collectives, estimated times; and the sharding of parameters."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from lemur_ray.config import Recipe
from lemur_ray.model.layout import MESH_AXES, spec
from lemur_ray.model.llama import abstract_params, is_matrix, logical_axes
from lemur_ray.train.aot.pod_plan import LIMIT, PodPlan, axis_of
from lemur_ray.train.pod.chips import BEST_MFU, CHIPS, GIB, MEASURED_MFU, PRODUCTS_AT_PEAK

SHOWN = 5e-4
"""Minimum share of all sent bytes for a source line to get a line of its own."""


def named(recipe: Recipe) -> str:
    """Mesh, microbatches and remat policy of a recipe as text."""
    mesh, train = recipe.mesh, recipe.train
    return (
        f"mesh dcn {mesh.dcn} x fsdp {mesh.fsdp} x tp {mesh.tp}, {train.microbatches} microbatches of "
        f"{train.rows_per_step // train.microbatches} rows, remat {train.remat}"
    )


def summary(plan: PodPlan) -> str:
    """One line on a plan: mesh, memory per chip and whether it fits, operations, time of compilation."""
    return (
        f"{named(plan.recipe)}: {plan.memory.total / GIB:.1f} GiB of "
        f"{LIMIT * plan.hbm_bytes / GIB:.1f} per chip ({'fits' if plan.fits else 'DOES NOT FIT'}), "
        f"executed {plan.executed_flops / plan.model_flops:.3f}x the model's FLOPs, compiled in {plan.compile_s:.0f} s"
    )


def lines(plan: PodPlan) -> Iterator[str]:
    """Yield the whole plan as lines of text: memory, operations, bytes sent, estimated time."""
    yield summary(plan)
    yield "memory of a chip, GiB:"
    for kind, size in (
        ("parameters (float32)", plan.memory.parameters),
        ("optimizer", plan.memory.optimizer),
        ("batch", plan.memory.batch),
        ("gradients (float32)", plan.memory.gradients),
        ("activations kept for the backward pass", plan.memory.activations),
        ("other temporaries", plan.memory.temporaries),
        ("code", plan.memory.code),
        ("total", plan.memory.total),
        ("of it may be used", int(LIMIT * plan.hbm_bytes)),
    ):
        yield f"  {kind:40s} {size / GIB:8.2f}"
    if plan.memory.host:
        yield f"  {'in the memory of the host, per chip':40s} {plan.memory.host / GIB:8.2f}"
    yield (
        f"FLOPs of a step: model {plan.model_flops:.3e} (6N + 6LDS, causal attention), executed "
        f"{plan.executed_flops:.3e} ({plan.executed_flops / plan.model_flops:.3f}x; products, attention kernels and "
        "recomputation, loops counted)"
    )
    if plan.program.uncounted:
        yield f"not counted in them: {', '.join(f'{n} x {target}' for target, n in plan.program.uncounted.items())}"
    if cudnn := [name for name in plan.program.kernels if name.startswith("__cudnn")]:
        yield f"memory that {', '.join(cudnn)} ask for while they run is not known without a device and not counted"
    yield from sent(plan)
    chip = CHIPS[plan.where.name]
    links = "of NVLink, 50 between hosts" if chip.network_bytes_per_s else f"a link on torus {plan.where.topology}"
    by_axis = ", ".join(f"{axis} {seconds:.1f} s" for axis, seconds in plan.time.by_axis_s.items() if seconds >= 0.05)
    best = MEASURED_MFU.get(plan.where.name, BEST_MFU)
    yield (
        f"a range, nothing was measured: {plan.range_s[0]:.1f} to {plan.range_s[1]:.1f} s a step = {plan.mfu[0]:.0%} "
        f"to {plan.mfu[1]:.0%} MFU (6N + 6LDS), from all overlapped collectives hidden to none, at most the "
        f"{best:.1%} that others have measured. Products {plan.time.compute_s:.1f} s at {PRODUCTS_AT_PEAK:.0%} of "
        f"{chip.peak_flops / 1e12:.0f} TFLOP/s; links {plan.time.communication_s:.1f} s ({by_axis}) at "
        f"{chip.link_bytes_per_s / 1e9:.0f} GB/s {links}. Memory-bound operations, stragglers "
        "and input are left out"
    )


def sent(plan: PodPlan) -> Iterator[str]:
    """Yield lines on the bytes a chip sends in a step, by collective and mesh axis, then by source line.
    Source lines below SHOWN of the total share the last line, so that the lines add up."""
    by_axis: dict[tuple[str, str], float] = defaultdict(float)
    by_origin: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0, 0.0])
    for c in plan.program.collectives:
        axis = axis_of(c.group, plan.recipe.mesh)
        by_axis[c.kind, axis] += c.sent_bytes
        shape = f"{c.dtype}[{','.join(map(str, c.shape))}]"
        place = by_origin[c.kind, axis, shape, c.origin, "" if c.overlapped else " (waits)"]
        place[0] += c.count
        place[1] += c.sent_bytes
    total = sum(by_axis.values())
    waiting = sum(plan.waiting_bytes.values())
    yield (
        f"bytes that a chip sends in a step, by ring: {total / 1e9:,.1f} GB, {(total - waiting) / 1e9:,.1f} of them "
        f"beside products, {waiting / 1e9:,.1f} while it waits"
    )
    for (kind, axis), size in sorted(by_axis.items(), key=lambda item: -item[1]):
        yield f"  {kind:18s} over {axis:12s} {size / 1e9:10.2f} GB"
    yield "the same by where it was written (type and shape of one result on a chip):"
    rest = total
    for (kind, axis, shape, origin, waits), (count, size) in sorted(by_origin.items(), key=lambda item: -item[1][1]):
        if size >= SHOWN * total:
            rest -= size
            yield f"  {size / 1e9:9.2f} GB {count:8,.0f} x {kind} over {axis}, {shape}: {origin or 'not known'}{waits}"
    yield f"  {rest / 1e9:9.2f} GB in {sum(size < SHOWN * total for _, size in by_origin.values())} others"


def abstract_mesh(recipe: Recipe) -> Any:
    """A mesh without devices for a recipe that ``pod_plan.placed`` returned (its fsdp is not -1)."""
    mesh = recipe.mesh
    return AbstractMesh((mesh.dcn, mesh.fsdp, mesh.tp), MESH_AXES, axis_types=(AxisType.Auto,) * 3)


def describe(recipe: Recipe) -> Iterator[str]:
    """Yield a table of parameters, one line each: shape, logical axes, partition, bytes on one device without and with
    optimizer state. recipe: its mesh has no -1. Raises ValueError if a shape does not divide."""
    mesh, update_rule, total = abstract_mesh(recipe), recipe.optimizer.rule, 0
    shapes = jax.tree_util.tree_leaves_with_path(abstract_params(recipe.model))
    axes = jax.tree.leaves(logical_axes(recipe.model), is_leaf=lambda one: isinstance(one, tuple))
    yield f"{'parameter':22s} {'shape':>22s} {'logical axes':30s} {'partition':28s} {'bytes':>12s} {'and moments':>14s}"
    for (path, leaf), names in zip(shapes, axes, strict=True):
        label = jax.tree_util.keystr(path, simple=True, separator=".")
        partition = spec(names, leaf.shape, mesh, label)
        size = 4 * math.prod(NamedSharding(mesh, partition).shard_shape(leaf.shape))
        with_state = size * (4 + update_rule.state_bytes(block_matrix=names[0] == "layers" and is_matrix(names))) // 4
        total += with_state
        shown = ", ".join("-" if rule is None else str(rule) for rule in partition)
        yield (
            f"{label:22s} {'x'.join(map(str, leaf.shape)):>22s} {', '.join(names):30s} {shown:28s} {size:12,d} "
            f"{with_state:14,d}"
        )
    yield f"{total:,} bytes of parameters and moments on each of {mesh.size} devices"
