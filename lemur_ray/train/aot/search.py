"""Searches a mesh, microbatches and remat policy for a slice; a rough cost model orders the candidates.

The model sums memory and communication of a step from shapes alone and is used for ordering only; results come from
compiled programs. Knows nothing of XLA."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lemur_ray.config import MeshConfig, Recipe, parse_remat
from lemur_ray.model.flops import flops_per_token
from lemur_ray.train.aot.pod_plan import LIMIT, PodPlan, StepDoesNotFit, placed
from lemur_ray.train.pod.chips import CHIPS, step_time
from lemur_ray.train.pod.gpu_hosts import Devices

POLICIES = (
    "save_dots",
    "save:query,key,value,attention,mid,gate",
    "save:query,key,value,attention,gate",
    "save_dots_except_mlp_in",
    "save:query,key,value,attention",
    "save:attention",
    "full",
)
TENSORS = (1, 2, 4, 8)
"""Sizes of the tp axis to try."""


class Guess(NamedTuple):
    """A candidate recipe with its estimated memory on one chip in bytes, and its estimated seconds per step."""

    recipe: Recipe
    bytes: float
    """Bytes on one chip."""
    step_s: float


def candidates(recipe: Recipe, where: Devices) -> list[Guess]:
    """Guesses for all valid meshes, microbatches and remat policies: first those that should fit in memory, fastest
    first, then the rest, smallest first; [] if no mesh divides the shapes."""
    guesses: list[Guess] = []
    mesh, model, rows, length = recipe.mesh, recipe.model, recipe.train.rows_per_step, recipe.data.seq_len
    for tp in TENSORS:
        if any(size % tp for size in (model.num_kv_heads, where.tp_within, model.vocab_size, model.ffn_dim, length)):
            continue
        meshed = placed(recipe, where, MeshConfig(dcn=mesh.dcn, tp=tp))
        shares = meshed.mesh.dcn * meshed.mesh.fsdp
        if model.dim % meshed.mesh.fsdp or rows % shares:
            continue
        each = rows // shares
        for microbatches in (n for n in range(1, each + 1) if each % n == 0):
            for policy in POLICIES:
                train = dataclasses.replace(recipe.train, microbatches=microbatches, remat=policy)
                guesses.append(guess(dataclasses.replace(meshed, train=train), where))
    room = LIMIT * CHIPS[where.name].hbm_bytes
    return sorted(guesses, key=lambda g: (g.bytes > room, g.step_s if g.bytes <= room else g.bytes))


def search(
    recipe: Recipe, where: Devices, compiled: Callable[[Recipe, Devices], PodPlan], tries: int
) -> Iterator[tuple[Recipe, PodPlan | StepDoesNotFit]]:
    """Compile the first ``tries`` of ``candidates`` with the function ``compiled``; yields (recipe, its plan, or the
    error that it does not fit)."""
    for candidate in candidates(recipe, where)[:tries]:
        try:
            yield candidate.recipe, compiled(candidate.recipe, where)
        except StepDoesNotFit as error:
            yield candidate.recipe, error


def guess(recipe: Recipe, where: Devices) -> Guess:
    """Estimate bytes and seconds of a step from shapes alone. recipe: one that ``pod_plan.placed`` returned."""
    model, mesh, train = recipe.model, recipe.mesh, recipe.train
    chips = where.devices_of(mesh)
    tokens = recipe.tokens_per_step / train.microbatches * mesh.tp / chips  # of one row of tp devices
    params = model.num_params
    per_chip = params / (mesh.fsdp * mesh.tp)
    layer = params / model.num_layers

    width = {
        "query": model.num_heads * model.head_dim, "key": model.num_kv_heads * model.head_dim,
        "value": model.num_kv_heads * model.head_dim, "attention": model.num_heads * model.head_dim,
        "mid": model.dim, "gate": model.ffn_dim, "up": model.ffn_dim,
    }  # fmt: skip
    saved, _ = parse_remat(train.remat)
    kept = 2.0 * (model.dim + sum(width[name] for name in saved)) * tokens / mesh.tp * model.num_layers
    working = (
        2.0 * tokens * (5 * model.dim + 6 * model.ffn_dim / mesh.tp) + 12.0 * model.vocab_size * model.dim / mesh.tp
    )
    gathered = 2.0 * 3 * layer / mesh.tp
    accumulators = 4.0 * per_chip * (2 if train.microbatches > 1 else 1)
    state = 6.0 + recipe.optimizer.rule.state_bytes(block_matrix=False)  # float32 parameters and their bfloat16 copy
    size = 1.12 * (state * per_chip + accumulators + kept + working + gathered)

    weights = {
        "query": model.dim * width["query"], "key": model.dim * width["key"], "value": model.dim * width["value"],
        "mid": model.dim * width["query"], "gate": model.dim * model.ffn_dim, "up": model.dim * model.ffn_dim,
    }  # fmt: skip
    again = sum(weights[name] for name in weights if name not in saved)
    if "up" in saved and "gate" in saved and "mid" in saved:
        again = sum(weights[name] for name in ("query", "key", "value") if name not in saved)
    flops = flops_per_token(model, recipe.data.seq_len) + 2.0 * again * model.num_layers
    moves = 3.0 * train.microbatches
    sent = {
        "fsdp": moves * 2.0 * params / mesh.tp * (mesh.fsdp - 1) / mesh.fsdp,
        "tp": 24.0 * train.microbatches * model.num_layers * 2.0 * tokens * model.dim * (mesh.tp - 1) / mesh.tp,
        "dcn": 2.0 * 2.0 * per_chip * train.microbatches if mesh.dcn > 1 else 0.0,
    }
    sizes = {"dcn": mesh.dcn, "fsdp": mesh.fsdp, "tp": mesh.tp}
    torus = tuple(int(n) for n in where.topology.split("x"))
    time = step_time(CHIPS[where.name], torus, sizes, flops * recipe.tokens_per_step / chips, sent)
    return Guess(recipe, size, time.middle_s)
