"""Plans one training step on a slice or GPUs that this machine lacks: describe, compile, search, or check shardings.

Sets environment variables that jax reads on import, so this module imports jax late. Knows nothing of Ray."""

import dataclasses
import math
import os
import time
from collections.abc import Callable
from typing import Any

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.recipes import get_recipe
from lemur_ray.train.aot import absent_devices, pod_plan
from lemur_ray.train.aot.pod_plan import BlockDoesNotFit, PodPlan, StepDoesNotFit
from lemur_ray.train.pod.gpu_hosts import PER_HOST, Devices, GpuHosts
from lemur_ray.train.pod.slices import Slice, on_devices, run_shape


def devices_of(recipe: Recipe) -> Devices:
    """The TPU slice of a recipe's mesh, or for GPUs, H100 in hosts of up to 8. Raises ValueError if it has neither."""
    mesh = recipe.mesh
    if mesh.use_gpu:
        per_host = math.gcd(mesh.num_workers, PER_HOST[-1])
        return GpuHosts("h100", mesh.num_workers // per_host, per_host)
    if not mesh.topology:
        raise ValueError(f"recipe {recipe.name} names no slice: give --topology, for example v4:4x8x8 or h100:8")
    return Slice.of(mesh.accelerator_type, mesh.topology)


def run(recipe: Recipe, where: Devices, *, search: int, describe: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Plan the step, log the plan line by line with ``say``, and return the JSON object that the job prints.
    On devices other than the recipe's own, only dcn and tp of an unmodified mesh are used. search: maximum number of
    candidates to compile; 0: compile the recipe's own mesh. describe: only show the shardings. Sets environment
    variables of jax. Raises NoGpuCompiler, and ValueError if recipe, mesh and devices do not match."""
    if (on_gpus := isinstance(where, GpuHosts)) and not describe:
        absent_devices.check_gpu_compiler()
    with_compiler = on_gpus or absent_devices.has_libtpu()
    searching = search and with_compiler and not describe  # the search chooses fsdp and tp
    placed = pod_plan.placed(recipe, where, MeshConfig(dcn=recipe.mesh.dcn) if searching else _mesh(recipe, where))
    os.environ.update(absent_devices.environment(where, with_compiler, where.devices_of(placed.mesh)))
    from lemur_ray.train.aot import compiled_step, report
    from lemur_ray.train.aot import search as candidates
    from lemur_ray.train.pod.placement import check_recipe

    if not search:
        check_recipe(placed)
    say(f"{recipe.name} on {where}: {recipe.tokens_per_step:,} tokens a step")
    if describe:
        for line in report.describe(placed):
            say(line)
        return {"recipe": recipe.name, "topology": f"{where.name}:{where.topology}", "fits": None}
    if not with_compiler:
        return _shardings_only(placed, where, say)
    if not search:
        try:
            plan = compiled_step.plan(placed, where)
        except StepDoesNotFit as error:
            say(f"{report.named(placed)}: DOES NOT FIT ({error})")
            if not isinstance(error, BlockDoesNotFit):
                say("--search 4 looks for a plan that does")
            return _nothing(placed, where)
        for line in report.lines(plan):
            say(line)
        if not plan.fits:
            say("it does not fit: --search 4 looks for a plan that does")
        return plan.to_json()
    plans: list[PodPlan] = []
    tried = 0
    for candidate, result in candidates.search(placed, where, compiled_step.plan, search):
        tried += 1
        if isinstance(result, StepDoesNotFit):
            say(f"{report.named(candidate)}: DOES NOT FIT ({result})")
        else:
            say(report.summary(result))
            plans.append(result)
    if not tried:
        raise ValueError(f"no mesh of {where} divides the shapes and the {recipe.train.rows_per_step} rows of a step")
    if not plans:
        return {**_nothing(placed, where), "tried": tried}
    best = min(plans, key=lambda plan: (not plan.fits, plan.time.middle_s if plan.fits else plan.memory.total))
    for line in report.lines(best):
        say(line)
    mesh, train = best.recipe.mesh, best.recipe.train
    if best.fits:
        say(
            f"as flags: --mesh.dcn {mesh.dcn} --mesh.fsdp {mesh.fsdp} --mesh.tp {mesh.tp} "
            f"--train.microbatches {train.microbatches} --train.remat {train.remat}"
        )
    return {**best.to_json(), "tried": tried}


def _mesh(recipe: Recipe, where: Devices) -> MeshConfig:
    """The mesh to plan: the recipe's; if that is unmodified and ``where`` is another slice, only its dcn and tp."""
    mesh, own = recipe.mesh, get_recipe(recipe.name).mesh
    untouched = (mesh.dcn, mesh.fsdp, mesh.tp) == (own.dcn, own.fsdp, own.tp)
    elsewhere = not (own.topology or own.use_gpu) or devices_of(get_recipe(recipe.name)) != where
    return MeshConfig(dcn=mesh.dcn, tp=mesh.tp) if untouched and elsewhere else mesh


def _nothing(recipe: Recipe, where: Devices) -> dict[str, Any]:
    name = f"{where.name}:{where.topology}"
    return {"recipe": recipe.name, "topology": name, "fits": False, "hbm_peak_gib": None, "compile_s": None}


def _shardings_only(recipe: Recipe, where: Devices, say: Callable[[str], None]) -> dict[str, Any]:
    """Without libtpu: trace the step on fake CPU devices, which raises ValueError if a shape does not divide."""
    import jax

    from lemur_ray.model.flops import flops_per_token
    from lemur_ray.model.sharding import make_mesh
    from lemur_ray.train.aot import compiled_step

    say("libtpu is not installed (pip install 'lemur-ray[tpu]'): only shardings are checked, on fake CPU devices")
    chips = where.devices_of(recipe.mesh)
    if len(jax.devices()) != chips:
        raise ValueError(f"jax was started with {len(jax.devices())} devices, expected {chips} fake ones")
    mesh, began = make_mesh(recipe.mesh, jax.devices()), time.monotonic()
    compiled_step.lower(on_devices(recipe, run_shape(recipe.mesh)), mesh)
    parameters, optimizer = compiled_step.state_bytes(recipe, mesh)
    say(f"every shape divides; parameters {parameters:,} and optimizer {optimizer:,} bytes on each of {chips} devices")
    return {
        "recipe": recipe.name, "topology": f"{where.name}:{where.topology}",
        "mesh": {name: dataclasses.asdict(recipe.mesh)[name] for name in ("dcn", "fsdp", "tp")},
        "fits": None, "hbm_peak_gib": None, "compile_s": None, "traced_s": round(time.monotonic() - began, 1),
        "state_bytes_per_chip": parameters + optimizer,
        "model_flops_per_step": recipe.tokens_per_step * flops_per_token(recipe.model, recipe.data.seq_len),
    }  # fmt: skip
